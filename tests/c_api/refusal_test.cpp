// What the C ABI refuses, in which words, and how a thread finds its own message.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"

namespace tessera::testing {
namespace {

// A sound two-by-two copy; each test breaks one thing about x.
struct CopyCase {
  Array<float> x{{2, 2}, {1, 2, 3, 4}};
  Array<float> out{{2, 2}};

  TesseraStatus run(const TesseraContext* ctx = nullptr) { return tessera_copy(x, out, ctx); }
};

TEST(CApiRefuses, AMissingTensor) {
  CopyCase c;
  expect_refused(tessera_copy(nullptr, c.out, nullptr), "copy: x is NULL");
}

TEST(CApiRefuses, BadDlTensors) {
  static int64_t negative[] = {2, -2};
  static int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  static int64_t many[] = {1, 1, 1, 1, 1, 1, 1};
  constexpr int64_t kFar = int64_t{1} << 60;
  static int64_t far[] = {std::numeric_limits<int64_t>::max(), 1};
  static int64_t far_below[] = {std::numeric_limits<int64_t>::min(), 1};
  static int64_t far_together[] = {kFar, kFar};
  struct Case {
    const char* words;
    std::function<void(DLTensor&)> damage;
  };
  const Case cases[] = {
      {"copy: x has dtype float64", [](DLTensor& t) { t.dtype.bits = 64; }},
      {"copy: x has dtype complex32", [](DLTensor& t) { t.dtype.code = kDLComplex; }},
      {"code 200", [](DLTensor& t) { t.dtype.code = 200; }},
      {"in 4 lanes", [](DLTensor& t) { t.dtype.lanes = 4; }},
      {"copy: x is on a device of DLPack type 10",
       [](DLTensor& t) { t.device.device_type = kDLROCM; }},
      {"copy: x is on a device of DLPack type 99",
       [](DLTensor& t) { std::memset(&t.device.device_type, 99, 1); }},
      {"copy: x is on CUDA device -1",
       [](DLTensor& t) {
         t.device = {kDLCUDA, -1};
       }},
      {"copy: x has 7 dimensions; want 0 to 6",
       [](DLTensor& t) {
         t.ndim = 7;
         t.shape = many;
       }},
      {"copy: x has -1 dimensions", [](DLTensor& t) { t.ndim = -1; }},
      {"copy: x has size -2 along axis 1", [](DLTensor& t) { t.shape = negative; }},
      {"copy: x has more than 2^60 elements", [](DLTensor& t) { t.shape = huge; }},
      {"copy: x has no shape", [](DLTensor& t) { t.shape = nullptr; }},
      {"copy: x has no data, but 4 elements", [](DLTensor& t) { t.data = nullptr; }},
      {"copy: x has stride 9223372036854775807 along axis 0", [](DLTensor& t) { t.strides = far; }},
      {"copy: x has stride -9223372036854775808 along axis 0",
       [](DLTensor& t) { t.strides = far_below; }},
      {"copy: x has stride 1152921504606846976 along axis 1",
       [](DLTensor& t) { t.strides = far_together; }},
      {"copy: x has byte_offset 9223372036854775808",
       [](DLTensor& t) { t.byte_offset = uint64_t{1} << 63; }},
      {"copy: x begins at an address that is 1 bytes off a multiple of 4, which f32 needs",
       [](DLTensor& t) { t.byte_offset = 1; }},
      {"copy: x begins at an address that is 2 bytes off a multiple of 4",
       [](DLTensor& t) { t.data = static_cast<char*>(t.data) + 2; }},
      {"copy: x begins at an address that is 3 bytes off a multiple of 8, which i64 needs",
       [](DLTensor& t) {
         t.dtype = {kDLInt, 64, 1};
         t.byte_offset = 3;
       }},
      {"copy: x begins at an address that is 1 bytes off a multiple of 2, which bf16 needs",
       [](DLTensor& t) {
         t.device = {kDLCUDA, 0};
         t.dtype = {kDLBfloat, 16, 1};
         t.byte_offset = 1;
       }},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.words);
    CopyCase c;
    bad.damage(c.x.dl);
    expect_refused(c.run(), bad.words);
  }
}

TEST(CApiRefuses, AFormatTheStorageCannotHold) {
  Array<float> x({1, 2});
  Array<float> out({1, 2});
  Array<float> scale({1, 1});
  expect_refused(
      tessera_quantize(x, out, scale, nullptr, TESSERA_SCALE_DYNAMIC, TESSERA_E4M3, nullptr),
      "quantize: out holds f32 but its format is e4m3");
  expect_refused(tessera_quantize(x, out, scale, nullptr, TESSERA_SCALE_DYNAMIC, 11, nullptr),
                 "quantize: out has format 11");
}

TEST(CApiRefuses, PackedInt4WithGaps) {
  Array<float> x({1, 4});
  Array<uint8_t> q({1, 4});
  Array<float> scale({1, 1});
  int64_t shape[] = {1, 2};
  int64_t strides[] = {4, 2};
  q.dl.shape = shape;
  q.dl.strides = strides;
  expect_refused(tessera_quantize(x, q, scale, nullptr, TESSERA_SCALE_DYNAMIC, TESSERA_I4, nullptr),
                 "quantize: out has stride 2 along its last axis");
}

// A stride in bytes is doubled to count i4 elements, and this one would overflow.
TEST(CApiRefuses, PackedInt4WithAStrideOutOfRange) {
  Array<float> x({1, 4});
  Array<uint8_t> q({1, 2});
  Array<float> scale({1, 1});
  int64_t strides[] = {std::numeric_limits<int64_t>::max(), 1};
  q.dl.strides = strides;
  expect_refused(tessera_quantize(x, q, scale, nullptr, TESSERA_SCALE_DYNAMIC, TESSERA_I4, nullptr),
                 "quantize: out has stride 9223372036854775807 along axis 0 of size 1");
}

TEST(CApiRefuses, EnumsOutOfRange) {
  Array<float> x({1, 2});
  expect_refused(tessera_activation(x, nullptr, x, 4, nullptr),
                 "activation: kind is 4; want 0 to 3");
}

TEST(CApiRefuses, AStructThatWasNotSized) {
  CopyCase c;
  TesseraContext ctx{};
  expect_refused(c.run(&ctx), "TesseraContext.struct_size is 0");
  TesseraRowInfo row{};
  expect_refused(tessera_row_info(0, &row), "TesseraRowInfo.struct_size is 0");
  TesseraDeviceInfo device{};
  expect_refused(tessera_device_info(0, &device), "TesseraDeviceInfo.struct_size is 0");
}

TEST(CApiRefuses, ARopeTableOfAnotherType) {
  Array<int32_t> table({2, 2});
  expect_refused(tessera_make_rope_table(table, 10000.0, nullptr), "make_rope_table: table is i32");
}

TEST(CApiRefuses, WhatTheOperationRefuses) {
  CopyCase c;
  Array<float> small({1, 2});
  expect_refused(tessera_copy(c.x, small, nullptr), "copy: out is f32[1, 2]");
}

TEST(CApiRefuses, RowsAndDevicesThatDoNotExist) {
  TesseraRowInfo row{};
  row.struct_size = sizeof row;
  expect_refused(tessera_row_info(tessera_num_rows(), &row), "there is no row");
  TesseraDeviceInfo device{};
  device.struct_size = sizeof device;
  expect_refused(tessera_device_info(tessera_num_cuda_devices(), &device),
                 "there is no CUDA device");
}

TEST(CApi, TakesEmptyTensorsWithoutData) {
  Array<float> x({0, 4});
  Array<float> out({0, 4});
  x.dl.data = nullptr;
  out.dl.data = nullptr;
  EXPECT_EQ(tessera_copy(x, out, nullptr), TESSERA_OK) << tessera_last_error();
}

TEST(CApi, TakesPinnedHostMemoryAsTheCpus) {
  CopyCase c;
  c.x.dl.device = {kDLCUDAHost, 0};
  EXPECT_EQ(c.run(), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(c.out.values, c.x.values);
}

TEST(CApi, ChecksWithoutRunning) {
  CopyCase c;
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  EXPECT_EQ(c.run(&ctx), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(c.out.values, std::vector<float>(4));
  ctx.row = "no_such_row";
  EXPECT_EQ(c.run(&ctx), TESSERA_NOT_SUPPORTED);
  EXPECT_STRNE(tessera_last_error(), "");
}

TEST(CApi, KeepsOneMessageAThread) {
  CopyCase c;
  ASSERT_EQ(tessera_copy(nullptr, c.out, nullptr), TESSERA_ERROR);
  const std::string ours = tessera_last_error();
  std::string theirs_before;
  std::string theirs_after;
  std::thread other([&] {
    theirs_before = tessera_last_error();
    tessera_argmax(nullptr, nullptr, nullptr);
    theirs_after = tessera_last_error();
  });
  other.join();
  EXPECT_EQ(theirs_before, "");
  EXPECT_NE(theirs_after.find("argmax"), std::string::npos) << theirs_after;
  EXPECT_EQ(tessera_last_error(), ours);
}

TEST(CApi, KeepsTheMessageThroughCallsThatSucceed) {
  CopyCase c;
  ASSERT_EQ(tessera_copy(nullptr, c.out, nullptr), TESSERA_ERROR);
  const std::string before = tessera_last_error();
  ASSERT_EQ(c.run(), TESSERA_OK);
  EXPECT_EQ(tessera_last_error(), before);
}

TEST(CApi, SaysItsVersions) {
  EXPECT_EQ(tessera_abi_version(), TESSERA_ABI_VERSION);
  EXPECT_EQ(std::string(tessera_version()).find('.'), 1u);
  EXPECT_NE(tessera_cuda_version(), nullptr);
}

TEST(CApi, ListsEveryRowOnce) {
  std::string previous;
  for (int64_t i = 0; i < tessera_num_rows(); ++i) {
    TesseraRowInfo row{};
    row.struct_size = sizeof row;
    ASSERT_EQ(tessera_row_info(i, &row), TESSERA_OK) << tessera_last_error();
    const std::string family = row.family;
    EXPECT_TRUE(family == "elementwise" || family == "gemm" || family == "attention" ||
                family == "kv" || family == "sampling")
        << family;
    EXPECT_EQ(std::strncmp(row.name, row.op, std::strlen(row.op)), 0) << row.name;
    EXPECT_NE(row.name, previous);
    EXPECT_GE(row.in, TESSERA_F32);
    EXPECT_LE(row.out, TESSERA_I64);
    previous = row.name;
  }
}

}  // namespace
}  // namespace tessera::testing
