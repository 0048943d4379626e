// Folders of weights: which files are taken, and which are refused.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors.h"
#include "tests/core/message_of.h"
#include "tests/model/stored_file.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using model::Checkpoint;

constexpr std::string_view kIndex = "model.safetensors.index.json";

std::string one_tensor(const std::string& name) { return stored_tensors({{name, {1}, {1.0f}}}); }

void expect_refused(const fs::path& folder, const std::vector<std::string_view>& words) {
  const std::string message = message_of([&] { Checkpoint::open(folder); });
  for (const std::string_view word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' is not in: " << message;
  }
}

TEST(Checkpoint, OpensASingleFile) {
  const TemporaryFolder folder;
  const std::string file = stored_tensors({{"a", {2}, {1, 2}}, {"b", {1}, {3}}});
  folder.write("model.safetensors", file);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.size_bytes(), static_cast<int64_t>(file.size()));
  ASSERT_NE(checkpoint.find("b"), nullptr);
  float b = 0;
  const model::StoredTensor& stored = *checkpoint.find("b");
  stored.file->read(stored.begin, std::as_writable_bytes(std::span(&b, 1)));
  EXPECT_EQ(b, 3.0f);
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST(Checkpoint, OpensTheShardsOfAnIndex) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("parts/two.safetensors", one_tensor("b"));
  folder.write(kIndex, R"({"metadata": {"total_size": 8},
                           "weight_map": {"a": "one.safetensors", "b": "parts/two.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_NE(checkpoint.find("a"), nullptr);
  EXPECT_NE(checkpoint.find("b"), nullptr);
}

TEST(Checkpoint, RefusesIndicesThatAreNotOnes) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  const std::vector<std::pair<std::string, std::string_view>> cases = {
      {"", "is not JSON"},
      {"[]", "an object"},
      {"{}", "weight_map is missing"},
      {R"({"weight_map": []})", "weight_map is []"},
      {R"({"weight_map": {"a": 1}})", "weight_map.a is 1"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})", "'a' appears twice"},
      {R"({"weight_map": {"a": "two.safetensors"}})", "two.safetensors: is listed"},
      {R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})",
       "tensor 'b' is said to be in one.safetensors, and no shard has it"},
  };
  for (const auto& [index, words] : cases) {
    folder.write(kIndex, index);
    expect_refused(folder.path(), {words});
  }
}

TEST(Checkpoint, RefusesATensorInTwoShardsAndInTheWrongOne) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  folder.write("two.safetensors", one_tensor("a"));
  folder.write(kIndex, R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  expect_refused(folder.path(), {"two.safetensors: tensor 'a' is also in one.safetensors"});
  folder.write("two.safetensors", one_tensor("b"));
  folder.write(kIndex, R"({"weight_map": {"a": "two.safetensors", "b": "one.safetensors"}})");
  expect_refused(folder.path(),
                 {"tensor 'a' is said to be in two.safetensors, and one.safetensors"});
}

TEST(Checkpoint, RefusesATruncatedShardByItsName) {
  const TemporaryFolder folder;
  const std::string file = one_tensor("a");
  folder.write("one.safetensors", file.substr(0, file.size() - 2));
  folder.write(kIndex, R"({"weight_map": {"a": "one.safetensors"}})");
  expect_refused(folder.path(), {"one.safetensors: tensor 'a'", "cut off"});
}

TEST(Checkpoint, ConfinesShardsToTheFolder) {
  const TemporaryFolder outside;
  outside.write("secret.safetensors", one_tensor("a"));
  const TemporaryFolder folder;
  const std::string absolute = (outside.path() / "secret.safetensors").string();
  const std::string climbing = "../" + outside.path().filename().string() + "/secret.safetensors";
  for (const std::string& shard : {absolute, climbing, std::string("../../etc/passwd"),
                                   std::string("x/../../etc/passwd"), std::string()}) {
    folder.write(kIndex, R"({"weight_map": {"a": ")" + shard + "\"}}");
    expect_refused(folder.path(), {"names the shard", "of the model's own folder"});
  }
}

TEST(Checkpoint, RefusesLinksThatLeadOut) {
  const TemporaryFolder outside;
  outside.write("secret.safetensors", one_tensor("a"));
  const TemporaryFolder folder;
  folder.write(kIndex, R"({"weight_map": {"a": "link.safetensors"}})");
  fs::create_symlink(outside.path() / "secret.safetensors", folder.path() / "link.safetensors");
  expect_refused(folder.path(), {"link.safetensors: is a link that leads out"});
  // Nor through a folder that is a link.
  folder.write(kIndex, R"({"weight_map": {"a": "door/secret.safetensors"}})");
  fs::create_directory_symlink(outside.path(), folder.path() / "door");
  expect_refused(folder.path(), {"is a link that leads out"});
}

TEST(Checkpoint, FollowsLinksThatStayInside) {
  const TemporaryFolder folder;
  folder.write("one.safetensors", one_tensor("a"));
  fs::create_symlink("one.safetensors", folder.path() / "link.safetensors");
  folder.write(kIndex, R"({"weight_map": {"a": "link.safetensors"}})");
  EXPECT_NE(Checkpoint::open(folder.path()).find("a"), nullptr);
}

// Hugging Face's cache: models--x/snapshots/REVISION/file is a link to models--x/blobs/HASH.
TEST(Checkpoint, FollowsTheLinksOfAHuggingFaceCache) {
  const TemporaryFolder cache;
  cache.write("blobs/0123", one_tensor("a"));
  cache.write("elsewhere/0123", one_tensor("a"));
  const fs::path snapshot = cache.path() / "snapshots" / "4567";
  fs::create_directories(snapshot);
  cache.write(fs::path("snapshots/4567") / kIndex, R"({"weight_map": {"a": "one.safetensors"}})");
  fs::create_symlink("../../blobs/0123", snapshot / "one.safetensors");
  EXPECT_NE(Checkpoint::open(snapshot).find("a"), nullptr);
  fs::remove(snapshot / "one.safetensors");
  fs::create_symlink("../../elsewhere/0123", snapshot / "one.safetensors");
  expect_refused(snapshot, {"leads out"});
}

TEST(Checkpoint, ASingleFileMayBeALinkOfTheUsers) {
  const TemporaryFolder outside;
  outside.write("weights", one_tensor("a"));
  const TemporaryFolder folder;
  fs::create_symlink(outside.path() / "weights", folder.path() / "model.safetensors");
  EXPECT_NE(Checkpoint::open(folder.path()).find("a"), nullptr);
}

TEST(Checkpoint, RefusesPickledWeightsAndSaysWhatToDo) {
  for (const std::string_view name :
       {"pytorch_model.bin", "consolidated.00.pth", "model.pt", "model.ckpt"}) {
    const TemporaryFolder folder;
    folder.write(name, "pickle");
    expect_refused(folder.path(), {"pickled", name, "safe_serialization=True"});
  }
}

TEST(Checkpoint, SaysWhatItLookedFor) {
  const TemporaryFolder folder;
  expect_refused(folder.path(),
                 {"has no weights", "model.safetensors", "model.safetensors.index.json"});
  expect_refused(folder.path() / "nowhere", {"is not a folder"});
  folder.write("model.gguf", "GGUF");
  expect_refused(folder.path(), {"model.gguf", "give the .gguf file itself"});
  folder.write("model-00001-of-00002.safetensors", one_tensor("a"));
  expect_refused(folder.path(), {"model-00001-of-00002.safetensors", "need the index"});
}

TEST(Checkpoint, RefusesAFolderInPlaceOfAFile) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "model.safetensors");
  expect_refused(folder.path(), {"is not a regular file"});
}

TEST(Checkpoint, TheBundledModelIsComplete) {
  const Checkpoint checkpoint = Checkpoint::open(bundled_model());
  EXPECT_EQ(checkpoint.tensors().size(), 56u);
}

}  // namespace
}  // namespace tessera::testing
