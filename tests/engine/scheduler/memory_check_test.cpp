// A model that does not fit is refused before its weights are read, with what is needed, what is
// free and what to change.
// SPDX-License-Identifier: MIT
#include "engine/memory_check.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "core/text.h"
#include "engine/make_engine.h"
#include "engine/validate.h"
#include "tessera/core/error.h"
#include "tests/model/temporary_folder.h"

namespace tessera::engine {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 50;

model::ModelConfig bundled_config() {
  return model::load_config(tessera::testing::bundled_model());
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const OutOfMemory& error) {
    return error.what();
  } catch (const Error& error) {
    return concat("not OutOfMemory: ", error.what());
  }
  return {};
}

EngineOptions with_flags(EngineOptions options = {}) {
  options.field_names = {[](std::string_view field) { return concat("<", field, ">"); }};
  return options;
}

TEST(MemoryCheck, SaysWhatIsNeededForWhatAndWhatToChange) {
  const model::ModelConfig config = bundled_config();
  const EngineOptions options = fill_options(with_flags(), config);
  const MemoryNeeds needs = memory_needs(config, options);
  EXPECT_GT(needs.weights, 25'000'000);
  EXPECT_GT(needs.activations, 0);
  EXPECT_EQ(needs.host, 0);
  const int64_t fixed = needs.weights + needs.activations;
  const std::string message = refusal([&] { check_memory(config, options, fixed - 1, kPlenty); });
  for (const std::string& part :
       {concat("needs ", fixed, " bytes of cpu"), concat("weights ", needs.weights),
        concat(fixed - 1, " bytes are free"), std::string("lower <max_context>"),
        std::string("use <weights> int8")}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(message.find("engine: "), std::string::npos) << message;
}

TEST(MemoryCheck, CountsKeysAndValuesBesideTheModel) {
  const model::ModelConfig config = bundled_config();
  const EngineOptions options = fill_options(with_flags({.kv_bytes = 100'000'000}), config);
  const MemoryNeeds needs = memory_needs(config, options);
  const int64_t fixed = needs.weights + needs.activations;
  EXPECT_EQ(refusal([&] { check_memory(config, options, fixed + 100'000'000, kPlenty); }), "");
  const std::string message =
      refusal([&] { check_memory(config, options, fixed + 99'999'999, kPlenty); });
  EXPECT_EQ(message, "<kv_bytes> is 100000000; 99999999 bytes are free beside the model: lower it");
}

TEST(MemoryCheck, OfAGpuLooksAtTheHostToo) {
  const model::ModelConfig config = bundled_config();
  EngineOptions options = fill_options(with_flags(), config);
  options.device = cuda_device();
  const MemoryNeeds needs = memory_needs(config, options);
  EXPECT_GT(needs.host, 0);
  EXPECT_GE(needs.activations, kernel_scratch_bytes(config, options));
  EXPECT_EQ(refusal([&] { check_memory(config, options, kPlenty, needs.host); }), "");
  const std::string message =
      refusal([&] { check_memory(config, options, kPlenty, needs.host - 1); });
  EXPECT_NE(message.find(concat("needs ", needs.host, " bytes of host memory")), std::string::npos)
      << message;
}

// The folder has no weights: if they were looked for before memory is checked, that would be the
// error.
TEST(MemoryCheck, ComesBeforeWeightsAreLookedFor) {
  const tessera::testing::TemporaryFolder folder;
  for (const char* name : {"config.json", "tokenizer.json"}) {
    std::filesystem::copy_file(tessera::testing::bundled_model() / name, folder.path() / name);
  }
  const std::string message = refusal(
      [&] { Engine::load(folder.path(), {.max_context = 64, .kv_bytes = int64_t{1} << 49}); });
  EXPECT_NE(message.find("kv_bytes is 562949953421312"), std::string::npos) << message;
  const std::string later = refusal([&] { Engine::load(folder.path(), {.max_context = 64}); });
  EXPECT_NE(later.find("not OutOfMemory"), std::string::npos) << later;
}

TEST(FreeMemory, IsWithinTheLimitOfTheProcess) {
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  int64_t num_pages = 0;
  std::ifstream("/proc/self/statm") >> num_pages;
  struct rlimit limit = before;
  constexpr rlim_t kLeft = rlim_t{1} << 30;
  limit.rlim_cur = static_cast<rlim_t>(num_pages * sysconf(_SC_PAGESIZE)) + kLeft;
  if (setrlimit(RLIMIT_AS, &limit) != 0) GTEST_SKIP() << "no limit can be set here";
  const int64_t left = free_memory(cpu_device());
  setrlimit(RLIMIT_AS, &before);
  EXPECT_LE(left, static_cast<int64_t>(kLeft) + (1 << 20));
  EXPECT_GT(left, 0);
}

}  // namespace
}  // namespace tessera::engine
