// Operations on the objects of a framework, here one made of a few functions.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/c_api/dl_tensor.h"

namespace tessera::testing {
namespace {

using Objects = std::vector<void*>;

int absent;
int stream;
int num_stream_questions;
int num_locks_held;
int num_errors_cleared;

intptr_t size(void* sequence) {
  return static_cast<intptr_t>(static_cast<Objects*>(sequence)->size());
}

void* item(void* sequence, intptr_t index) {
  return (*static_cast<Objects*>(sequence))[static_cast<size_t>(index)];
}

// An object is a DLManagedTensor; one without dimensions cannot be exported.
int tensor_from_object(void* object, DLTensor* tensor) {
  *tensor = static_cast<DLManagedTensor*>(object)->dl_tensor;
  return tensor->ndim == 0 ? -1 : 0;
}

void* capsule_pointer(void* capsule, const char* name) {
  const bool is_sound = static_cast<DLManagedTensor*>(capsule)->dl_tensor.ndim > 0;
  return is_sound && std::strcmp(name, "dltensor") == 0 ? capsule : nullptr;
}

int current_stream(int32_t device_type, int32_t device_id, void** answer) {
  ++num_stream_questions;
  EXPECT_EQ(device_type, kDLCUDA);
  *answer = &stream;
  return device_id == 5 ? -1 : 0;
}

void clear_error() { ++num_errors_cleared; }

void* unlock() {
  --num_locks_held;
  return &num_locks_held;
}

void lock(void* state) {
  EXPECT_EQ(state, &num_locks_held);
  ++num_locks_held;
}

// out = x on two objects, unless a test changes something.
struct ObjectsTest : ::testing::Test {
  ObjectsTest() {
    x_object.dl_tensor = x.dl;
    out_object.dl_tensor = out.dl;
    num_stream_questions = 0;
    num_locks_held = 1;
    num_errors_cleared = 0;
  }
  ~ObjectsTest() override { EXPECT_EQ(num_locks_held, 1); }

  int copy(Objects objects, const TesseraContext* ctx = nullptr) {
    using Copy = int (*)(const TesseraObjects*, void*, const TesseraContext*);
    return reinterpret_cast<Copy>(tessera_on_objects("copy"))(&how, &objects, ctx);
  }
  int copy() { return copy({&x_object, &out_object}); }

  Array<float> x{{1, 2}, {3, 4}};
  Array<float> out{{1, 2}};
  DLManagedTensor x_object{};
  DLManagedTensor out_object{};
  TesseraObjects how{
      sizeof(TesseraObjects), size,        item,   &absent, tensor_from_object, current_stream,
      capsule_pointer,        clear_error, unlock, lock};
};

TEST_F(ObjectsTest, AreReadByAnExchangeTable) {
  how.capsule_pointer = nullptr;
  EXPECT_EQ(copy(), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(out.values, x.values);
}

TEST_F(ObjectsTest, AreReadAsCapsulesWithoutOne) {
  how.tensor_from_object = nullptr;
  EXPECT_EQ(copy(), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(out.values, x.values);
}

TEST_F(ObjectsTest, MayBeAbsentInTheMiddleAndAtTheEnd) {
  using Softmax = int (*)(const TesseraObjects*, void*, const TesseraContext*, float);
  const auto softmax = reinterpret_cast<Softmax>(tessera_on_objects("softmax"));
  Objects objects{&x_object, &absent, &out_object};
  EXPECT_EQ(softmax(&how, &objects, nullptr, 0.0f), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(out.values, std::vector<float>(2, 0.5f));
  EXPECT_EQ(copy({&x_object}), TESSERA_ERROR);
  EXPECT_EQ(std::string(tessera_last_error()).find("copy: out is NULL"), 0u);
}

TEST_F(ObjectsTest, ThatCannotBeReadRunNothing) {
  x_object.dl_tensor.ndim = 0;
  EXPECT_EQ(copy(), -1);
  how.tensor_from_object = nullptr;
  EXPECT_EQ(copy(), -1);
  x_object.dl_tensor = x.dl;
  EXPECT_EQ(copy({&x_object, nullptr}), -1);
  EXPECT_EQ(copy({&x_object, &out_object, &out_object}), -1);
  EXPECT_EQ(num_errors_cleared, 4);
  EXPECT_EQ(out.values, std::vector<float>(2));
}

TEST_F(ObjectsTest, NeedAReaderWithAllItsFunctions) {
  using Copy = int (*)(const TesseraObjects*, void*, const TesseraContext*);
  const auto run = reinterpret_cast<Copy>(tessera_on_objects("copy"));
  Objects objects{&x_object, &out_object};
  const auto expect_refused = [&](const TesseraObjects* reader, void* sequence, const char* words) {
    EXPECT_EQ(run(reader, sequence, nullptr), TESSERA_ERROR) << words;
    EXPECT_NE(std::string(tessera_last_error()).find(words), std::string::npos)
        << tessera_last_error();
  };
  expect_refused(nullptr, &objects, "how is NULL");
  expect_refused(&how, nullptr, "sequence is NULL");
  const auto without = [&](auto member) {
    TesseraObjects reader = how;
    reader.*member = nullptr;
    return reader;
  };
  const TesseraObjects no_size = without(&TesseraObjects::size);
  expect_refused(&no_size, &objects, "TesseraObjects.size is NULL");
  const TesseraObjects no_item = without(&TesseraObjects::item);
  expect_refused(&no_item, &objects, "TesseraObjects.item is NULL");
  const TesseraObjects no_clear = without(&TesseraObjects::clear_error);
  expect_refused(&no_clear, &objects, "TesseraObjects.clear_error is NULL");
  const TesseraObjects no_unlock = without(&TesseraObjects::unlock);
  expect_refused(&no_unlock, &objects, "TesseraObjects.unlock is NULL");
  const TesseraObjects no_lock = without(&TesseraObjects::lock);
  expect_refused(&no_lock, &objects, "TesseraObjects.lock is NULL");
  TesseraObjects no_reader = without(&TesseraObjects::tensor_from_object);
  no_reader.capsule_pointer = nullptr;
  expect_refused(&no_reader, &objects, "tensor_from_object and capsule_pointer is NULL");
  how.struct_size = 0;
  expect_refused(&how, &objects, "TesseraObjects.struct_size is 0");
  EXPECT_EQ(out.values, std::vector<float>(2));
}

TEST_F(ObjectsTest, AskForTheirStreamOnAGpuOnly) {
  EXPECT_EQ(copy(), TESSERA_OK);
  EXPECT_EQ(num_stream_questions, 0);
  // The framework has no stream for device 5, so nothing runs. If a context is given, the framework
  // is not asked, and the operation itself refuses tensors on two devices.
  x_object.dl_tensor.device = {kDLCUDA, 5};
  EXPECT_EQ(copy(), -1);
  EXPECT_EQ(num_stream_questions, 1);
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  EXPECT_EQ(copy({&x_object, &out_object}, &ctx), TESSERA_ERROR);
  EXPECT_EQ(num_stream_questions, 1);
  how.current_stream = nullptr;
  EXPECT_EQ(copy(), TESSERA_ERROR);
}

TEST_F(ObjectsTest, TakeAContext) {
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  EXPECT_EQ(copy({&x_object, &out_object}, &ctx), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(out.values, std::vector<float>(2));
}

// One query over one key, whose value it must give back; the struct's own tensors are not read.
TEST_F(ObjectsTest, AreTheTensorsOfAStructOfArguments) {
  using Attention =
      int (*)(const TesseraObjects*, void*, const TesseraContext*, const TesseraAttentionArgs*);
  const auto run = reinterpret_cast<Attention>(tessera_on_objects("attention_prefill"));
  Array<float> q({1, 1, 1, 1}), v({1, 1, 1, 2}, {5, 6}), attended({1, 1, 1, 2}), lse({1, 1, 1});
  DLManagedTensor objects[4]{};
  const DLTensor tensors[] = {q.dl, v.dl, attended.dl, lse.dl};
  for (size_t i = 0; i < 4; ++i) objects[i].dl_tensor = tensors[i];
  Objects sequence{&objects[0], &objects[0], &objects[1], &objects[2], &objects[3]};
  TesseraAttentionArgs args{};
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), TESSERA_ERROR);
  EXPECT_EQ(std::string(tessera_last_error()).find("TesseraAttentionArgs.struct_size is 0"), 0u);
  args.struct_size = sizeof args;
  args.sinks = &q.dl;  // of the wrong rank, were it read
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(attended.values, v.values);
  EXPECT_EQ(lse.values, std::vector<float>{0.0f});
}

// A sequence of one token, whose row must be read: the last tensor of the struct is given too.
TEST_F(ObjectsTest, AreAllTensorsOfAStruct) {
  using Gather =
      int (*)(const TesseraObjects*, void*, const TesseraContext*, const TesseraKvGatherArgs*);
  const auto run = reinterpret_cast<Gather>(tessera_on_objects("kv_gather"));
  Array<float> pages({1, 1, 1, 2}, {5, 6}), k({1, 1, 2}), v({1, 1, 2});
  Array<int32_t> lens({1}, {1}), starts({1}, {0}), tails({1}, {0});
  DLManagedTensor objects[6]{};
  const DLTensor tensors[] = {pages.dl, lens.dl, starts.dl, k.dl, v.dl, tails.dl};
  for (size_t i = 0; i < 6; ++i) objects[i].dl_tensor = tensors[i];
  Objects sequence{&objects[0], &objects[0], &objects[1], &objects[2], &objects[3], &objects[4]};
  TesseraKvGatherArgs args{};
  args.struct_size = sizeof args;
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(k.values, pages.values);
  EXPECT_EQ(v.values, pages.values);
  sequence.insert(sequence.end(), {&absent, &absent, &absent, &absent, &objects[5]});
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), TESSERA_ERROR);
  EXPECT_EQ(std::string(tessera_last_error()).find("kv_gather: tails is given"), 0u)
      << tessera_last_error();
  sequence.push_back(&absent);
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), -1);
}

// Two parts of one head, of which the second has seen nothing; the struct has no scalar.
TEST_F(ObjectsTest, AreAllThereIsToAStruct) {
  using Merge = int (*)(const TesseraObjects*, void*, const TesseraContext*,
                        const TesseraMergeAttentionArgs*);
  const auto run = reinterpret_cast<Merge>(tessera_on_objects("attention_merge"));
  Array<float> parts({2, 1, 1, 2}, {5, 6, 7, 8}), merged({1, 1, 2}), lse({1, 1});
  Array<float> lses({2, 1, 1}, {3, -std::numeric_limits<float>::infinity()});
  DLManagedTensor objects[4]{};
  const DLTensor tensors[] = {parts.dl, lses.dl, merged.dl, lse.dl};
  for (size_t i = 0; i < 4; ++i) objects[i].dl_tensor = tensors[i];
  Objects sequence{&objects[0], &objects[1], &objects[2], &objects[3]};
  TesseraMergeAttentionArgs args{};
  args.struct_size = sizeof args;
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(merged.values, (std::vector<float>{5, 6}));
  EXPECT_EQ(lse.values, std::vector<float>{3});
  sequence.push_back(&objects[3]);
  EXPECT_EQ(run(&how, &sequence, nullptr, &args), -1);
}

TEST_F(ObjectsTest, HaveEveryOperationAndNoOther) {
  for (const char* op : {"rms_norm",
                         "layer_norm",
                         "rope",
                         "activation",
                         "softmax",
                         "embedding",
                         "copy",
                         "quantize",
                         "dequantize",
                         "reduce",
                         "argmax",
                         "gemm",
                         "pack_gate_up",
                         "prune_2_4",
                         "expand_2_4",
                         "gemm_2_4",
                         "attention_prefill",
                         "attention_decode",
                         "kv_append",
                         "kv_gather",
                         "attention_cascade",
                         "attention_merge",
                         "kv_copy_pages",
                         "sample",
                         "token_logprobs",
                         "scale"}) {
    EXPECT_NE(tessera_on_objects(op), nullptr) << op;
  }
  EXPECT_EQ(tessera_on_objects("no_such_op"), nullptr);
  EXPECT_EQ(tessera_on_objects(nullptr), nullptr);
}

}  // namespace
}  // namespace tessera::testing
