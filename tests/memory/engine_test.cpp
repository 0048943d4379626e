// An engine loaded and run with the first allocation failing, then the second, and so on to the
// last: the process lives, the caller gets an exception, and all memory is freed.
// SPDX-License-Identifier: MIT
#include "tessera/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <vector>

#include "tessera/core/error.h"
#include "tests/core/threads.h"
#include "tests/memory/failing_allocator.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 128, "max_position_embeddings": 256,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": 127,
  "torch_dtype": "float32"})";

// A vocabulary of the 94 printable bytes that spell themselves.
std::string tokenizer_json() {
  std::string vocab;
  for (char byte = '!'; byte <= '~'; ++byte) {
    if (!vocab.empty()) vocab += ',';
    vocab += '"';
    if (byte == '"' || byte == '\\') vocab += '\\';
    vocab += byte;
    vocab += "\":" + std::to_string(byte - '!');
  }
  return R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
         R"("decoder":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
         R"("model":{"type":"BPE","vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

class ModelFolder : public TemporaryFolder {
 public:
  ModelFolder() {
    write("config.json", kConfig);
    write("tokenizer.json", tokenizer_json());
    write("model.safetensors", stored_tensors(tiny_tensors(tiny_config())));
  }
};

struct Kind {
  const char* name;
  EngineOptions options;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

EngineOptions options_of(WeightFormat weights, KvFormat kv_type) {
  EngineOptions options;
  options.dtype = DType::f32;
  options.weights = weights;
  options.kv_type = kv_type;
  options.page_size = kv_type == KvFormat::int4 ? 32 : 8;
  options.max_batch = 4;
  options.max_step_tokens = 32;
  options.kv_bytes = 1 << 20;
  return options;
}

std::vector<Request> requests() {
  std::vector<Request> all(3);
  all[0].prompt = std::vector<int32_t>(20, 7);
  all[0].sampling.temperature = 0.0f;
  all[0].num_logprobs = 2;
  all[1].prompt = {1, 2, 3};
  all[1].num_outputs = 2;
  all[1].sampling.temperature = 0.8f;
  all[1].sampling.top_p = 0.9f;
  all[1].sampling.seed = 5;
  all[1].sampling.repetition_penalty = 1.1f;
  all[2].prompt = {9, 8, 7, 6};
  all[2].beam_width = 2;
  for (Request& request : all) request.max_new_tokens = 3;
  return all;
}

// The model is its own draft.
EngineOptions drafting_options() {
  EngineOptions options = options_of(WeightFormat::plain, KvFormat::plain);
  options.speculation = Speculation::draft;
  return options;
}

// The tokens of every sequence, or its error.
using Answers = std::vector<std::string>;

Answers run_all(Engine& engine) {
  Answers answers(requests().size() + 1);
  RequestId first = 0;
  for (Request& request : requests()) {
    const RequestId id = engine.submit(std::move(request)).value();
    first = first == 0 ? id : first;
  }
  while (engine.has_work()) {
    for (const SequenceOutput& output : engine.step()) {
      const auto place = static_cast<size_t>(output.index == 1 ? 3 : output.request - first);
      for (const OutputToken& token : output.tokens) {
        answers.at(place) += std::to_string(token.token) + ' ';
      }
      if (output.finish == FinishReason::error) answers[place] = output.error;
    }
  }
  return answers;
}

// After a step that threw the engine either goes on or says that it cannot.
void expect_usable_or_refusing(Engine& engine) {
  try {
    for (int i = 0; engine.has_work() && i < 100; ++i) engine.step();
    EXPECT_FALSE(engine.has_work());
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("load the model again"), std::string::npos)
        << error.what();
  }
}

Answers load_and_run(const ModelFolder& folder, const EngineOptions& options) {
  const std::unique_ptr<Engine> engine = Engine::load(folder.path(), options);
  try {
    return run_all(*engine);
  } catch (...) {
    stop_failing();
    expect_usable_or_refusing(*engine);
    throw;
  }
}

// Loads and runs while allocation `n` fails. Returns false if there were fewer than n.
bool run_failing(const ModelFolder& folder, const EngineOptions& options, int64_t n,
                 const Answers& want) {
  fail_allocation(n);
  try {
    const Answers answers = load_and_run(folder, options);
    const bool has_failed = stop_failing();
    for (size_t i = 0; i < want.size(); ++i) {
      if (answers[i].find("out of memory") != std::string::npos) continue;
      EXPECT_EQ(answers[i], want[i]) << "sequence " << i << ", allocation " << n;
    }
    return has_failed;
  } catch (const std::bad_alloc&) {
    EXPECT_TRUE(stop_failing()) << "allocation " << n;
  } catch (const Error& error) {
    EXPECT_TRUE(stop_failing()) << error.what();
  }
  return true;
}

class OutOfMemory : public ::testing::TestWithParam<Kind> {};

TEST_P(OutOfMemory, EveryAllocationOfLoadAndStepsMayFail) {
  const ModelFolder folder;
  EngineOptions options = GetParam().options;
  if (options.speculation == Speculation::draft) options.draft_folder = folder.path();
  for (const int count : {1, 3}) {
    const Threads threads(count);
    const Answers want = load_and_run(folder, options);
    int64_t live = num_live_allocations();
    int64_t n = 1;
    for (bool has_failed = true; has_failed; ++n) {
      has_failed = run_failing(folder, options, n, want);
      // A thread allocates its scratch memory at first use and keeps it, so one run may end with
      // more than it began with. A leak grows in every run.
      constexpr int kTries = 20;
      for (int i = 0; i < kTries && num_live_allocations() > live; ++i) {
        live = num_live_allocations();
        run_failing(folder, options, n, want);
      }
      ASSERT_LE(num_live_allocations(), live) << "leaked after allocation " << n;
      ASSERT_FALSE(HasFailure()) << "allocation " << n << ", " << count << " threads";
    }
    EXPECT_GT(n, 500);
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryKind, OutOfMemory,
    ::testing::Values(Kind{"plain", options_of(WeightFormat::plain, KvFormat::plain)},
                      Kind{"int8_weights", options_of(WeightFormat::int8, KvFormat::plain)},
                      Kind{"int8_kv", options_of(WeightFormat::plain, KvFormat::int8)},
                      Kind{"draft", drafting_options()},
                      Kind{"int4_kv", options_of(WeightFormat::int8, KvFormat::int4)}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::testing
