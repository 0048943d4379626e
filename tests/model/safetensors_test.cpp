// safetensors: what is read, and everything that is refused.
// SPDX-License-Identifier: MIT
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/stored_file.h"

namespace tessera::testing {
namespace {

using model::parse_safetensors;
using model::StoredTensor;

std::vector<StoredTensor> parse(const std::string& file) {
  return parse_safetensors(as_bytes_of(file), "a.safetensors");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = stored_file(
      R"({"__metadata__":{"format":"pt"},
          "b":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},
          "a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
          "empty":{"dtype":"F32","shape":[0,7],"data_offsets":[24,24]},
          "scalar":{"dtype":"I8","shape":[],"data_offsets":[28,29]}})",
      std::string(29, '\1'));
  const std::vector<StoredTensor> tensors = parse(file);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[0].dtype, DType::f32);
  EXPECT_EQ(tensors[0].begin, static_cast<int64_t>(file.size()) - 29);
  EXPECT_EQ(tensors[0].num_bytes, 24);
  EXPECT_EQ(tensors[1].name, "empty");
  EXPECT_EQ(tensors[2].name, "b");
  EXPECT_EQ(tensors[2].dtype, DType::f16);
  EXPECT_TRUE(tensors[3].shape.empty());
}

TEST(Safetensors, AnEmptyHeaderIsAFileWithoutTensors) {
  EXPECT_TRUE(parse(stored_file("{}")).empty());
  EXPECT_TRUE(parse(stored_file("{}      ")).empty());  // writers pad with spaces
}

TEST(Safetensors, TypesOfOursAreLoadable) {
  struct Known {
    std::string_view type;
    size_t num_bytes;
    DType dtype;
  };
  const std::vector<Known> known = {
      {"F32", 4, DType::f32},      {"F16", 2, DType::f16},      {"BF16", 2, DType::bf16},
      {"F8_E4M3", 1, DType::e4m3}, {"F8_E5M2", 1, DType::e5m2}, {"I8", 1, DType::i8},
      {"U8", 1, DType::u8},        {"I32", 4, DType::i32},      {"I64", 8, DType::i64}};
  for (const Known& type : known) {
    const std::string header = R"({"t":{"dtype":")" + std::string(type.type) +
                               R"(","shape":[1],"data_offsets":[0,)" +
                               std::to_string(type.num_bytes) + "]}}";
    const std::string file = stored_file(header, std::string(type.num_bytes, '\0'));
    const std::vector<StoredTensor> tensors = parse(file);
    EXPECT_EQ(loadable_dtype(tensors[0]), type.dtype);
    EXPECT_EQ(tensors[0].type, type.type);
  }
}

TEST(Safetensors, OtherTypesAreKeptAndRefusedWhenAskedFor) {
  const std::string file = stored_file(
      R"({"t":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},
          "u":{"dtype":"F4","shape":[4],"data_offsets":[16,18]},
          "v":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[18,19]}})",
      std::string(19, '\0'));
  const std::vector<StoredTensor> tensors = parse(file);
  ASSERT_EQ(tensors.size(), 3u);
  for (const StoredTensor& tensor : tensors) EXPECT_FALSE(tensor.dtype);
  EXPECT_EQ(tensors[0].num_bytes, 16);
  const std::string message = message_of([&] { loadable_dtype(tensors[0]); });
  EXPECT_NE(message.find("'t' is F64 of rank 1"), std::string::npos) << message;
  EXPECT_NE(message_of([&] { loadable_dtype(tensors[2]); }).find("'v' is U8 of rank 7"),
            std::string::npos);
}

struct Case {
  std::string what;
  std::string file;
  std::vector<std::string_view> words;
};

// A header with one field of tensor t as given, and 16 bytes of data.
std::string with_entry(const std::string& entry) {
  return stored_file(R"({"t":)" + entry + "}", std::string(16, '\0'));
}

std::vector<Case> header_cases() {
  const std::string good = R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  const std::string data(16, '\0');
  return {
      {"an empty file", "", {"has 0 bytes", "cut off"}},
      {"a file of seven bytes", std::string(7, '\0'), {"has 7 bytes"}},
      {"length 0", stored_file(good, data, 0), {"header has 0 bytes"}},
      {"length 1", stored_file(good, data, 1), {"header has 1 bytes"}},
      {"length beyond the file", stored_file(good, "", good.size() + 1), {"cut off"}},
      {"length above the limit", stored_file(good, data, 100'000'001), {"100000001", "at most"}},
      {"length 2^64 - 1", stored_file(good, data, ~uint64_t{0}), {"18446744073709551615"}},
      {"length cuts the JSON", stored_file(good, data, good.size() - 1), {"not JSON at byte"}},
      {"not JSON", stored_file("{nonsense}"), {"not JSON at byte"}},
      {"not UTF-8", stored_file("{\"\xff\":1}"), {"not JSON"}},
      {"a list", stored_file("[1, 2]"), {"not with an object"}},
      {"white space first", stored_file(" {}"), {"not with an object"}},
      {"two documents", stored_file("{}{}"), {"not JSON"}},
      {"a Git LFS pointer",
       "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
       {"Git LFS pointer", "git lfs pull"}},
      {"metadata that is a list",
       stored_file(R"({"__metadata__":[]})"),
       {"'__metadata__' is a list"}},
      {"metadata of numbers", stored_file(R"({"__metadata__":{"a":1}})"), {"strings only"}},
      {"metadata twice",
       stored_file(R"({"__metadata__":{"a":"1","a":"2"}})"),
       {"metadata 'a' appears twice"}},
      {"a tensor twice",
       stored_file(R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
                       "t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})"),
       {"tensor 't' appears twice"}},
      {"deep nesting", stored_file("{\"t\":" + std::string(500'000, '[')), {"'t' is a list"}},
      {"nesting in a shape",
       with_entry(R"({"dtype":"F32","shape":[[4]],"data_offsets":[0,16]})"),
       {"'t' has a list as its shape"}},
  };
}

std::vector<Case> entry_cases() {
  return {
      {"a number", with_entry("1"), {"'t' is a number, not an object"}},
      {"null", with_entry("null"), {"'t' is null"}},
      {"no type", with_entry(R"({"shape":[4],"data_offsets":[0,16]})"), {"'t' has no dtype"}},
      {"no shape", with_entry(R"({"dtype":"F32","data_offsets":[0,16]})"), {"'t' has no shape"}},
      {"no offsets", with_entry(R"({"dtype":"F32","shape":[4]})"), {"'t' has no data_offsets"}},
      {"an unknown field",
       with_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1})"),
       {"'t' has the unknown field 'x'"}},
      {"a field twice",
       with_entry(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
       {"'t' has dtype twice"}},
      {"a type that is a number",
       with_entry(R"({"dtype":4,"shape":[4],"data_offsets":[0,16]})"),
       {"'t' has a number as its dtype"}},
      {"an unknown type",
       with_entry(R"({"dtype":"F33","shape":[4],"data_offsets":[0,16]})"),
       {"'t'", "unknown type 'F33'"}},
      {"a shape that is a string",
       with_entry(R"({"dtype":"F32","shape":"4","data_offsets":[0,16]})"),
       {"'t' has a string as its shape"}},
      {"a negative size",
       with_entry(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"),
       {"'t' has a negative number as its shape"}},
      {"half a size",
       with_entry(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"),
       {"'t'", "not a whole one", "shape"}},
      {"rank 33",
       with_entry(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
                      1,1,1,1,1,1,1],"data_offsets":[0,1]})"),
       {"'t' has a list that is too long"}},
      {"one offset",
       with_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0]})"),
       {"'t' has 1 data_offsets"}},
      {"three offsets",
       with_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,8,16]})"),
       {"'t' has a list that is too long"}},
      {"an offset beyond 2^64",
       with_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[0,18446744073709551616]})"),
       {"'t'", "below 2^64"}},
      {"begin after end",
       with_entry(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
       {"'t' lies in bytes [16, 0) of 16"}},
      {"end past the file",
       with_entry(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"),
       {"'t' lies in bytes [0, 20) of 16", "cut off"}},
      {"offsets that wrap",
       with_entry(R"({"dtype":"F32","shape":[4],
                      "data_offsets":[18446744073709551608,18446744073709551615]})"),
       {"'t' lies in bytes [18446744073709551608"}},
      {"a shape of too many bytes",
       with_entry(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})"),
       {"'t' is F32[5], which takes 20 bytes, and has 16"}},
      {"a shape of too few bytes",
       with_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
       {"takes 12 bytes, and has 16"}},
      {"a size that overflows",
       with_entry(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"),
       {"'t'", "overflows"}},
      {"a size that overflows to the bytes there are",
       with_entry(R"({"dtype":"F32","shape":[4611686018427387908],"data_offsets":[0,16]})"),
       {"'t'", "overflows"}},
      {"a size that overflows beside an empty axis",
       with_entry(R"({"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]})"),
       {"'t'", "overflows"}},
      {"half a byte",
       with_entry(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"),
       {"'t'", "overflows"}},
      {"a gap at the start",
       with_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[4,16]})"),
       {"'t' begins at byte 4", "gap"}},
      {"bytes left over",
       with_entry(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"),
       {"end at byte 12 of 16"}},
      {"an overlap",
       stored_file(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                       "u":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
                   std::string(16, '\0')),
       {"'u' begins at byte 4", "ends at 8: they overlap"}},
      {"a gap between",
       stored_file(R"({"u":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},
                       "t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   std::string(16, '\0')),
       {"'u' begins at byte 8", "ends at 4: a gap"}},
  };
}

void expect_refused(const Case& refused) {
  SCOPED_TRACE(refused.what);
  const std::string message = message_of([&] { parse(refused.file); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("a.safetensors: "), std::string::npos) << message;
  for (const std::string_view word : refused.words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' is not in: " << message;
  }
}

TEST(SafetensorsRefusal, RefusesAHeaderThatIsNotOne) {
  for (const Case& refused : header_cases()) expect_refused(refused);
}

TEST(SafetensorsRefusal, RefusesAnEntryByTheNameOfItsTensor) {
  for (const Case& refused : entry_cases()) expect_refused(refused);
}

// A file cut off anywhere is refused, and nothing beyond its end is read.
TEST(SafetensorsRefusal, RefusesEveryPrefixOfAFile) {
  const std::string file = stored_tensors({{"t", {2, 2}, {1, 2, 3, 4}}, {"u", {1}, {5}}});
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string prefix = file.substr(0, size);
    EXPECT_NE(message_of([&] { parse(prefix); }), "") << size;
  }
  EXPECT_EQ(message_of([&] { parse(file); }), "");
}

// Any tensor name is shown as one printable line.
TEST(SafetensorsRefusal, ShowsHostileNamesSafely) {
  const std::string name = "a\\n\\u001b[31m" + std::string(5000, 'x');
  const std::string message = message_of([&] { parse(stored_file("{\"" + name + "\":1}")); });
  EXPECT_LT(message.size(), 300u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
