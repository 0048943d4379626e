// Tests of how verbs use an engine: arguments, generation, scoring and timing.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "apps/chat.h"
#include "apps/e2e.h"
#include "apps/e2e_subject.h"
#include "apps/generate.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/run_options.h"
#include "apps/score.h"
#include "engine/make_engine.h"
#include "engine/validate.h"
#include "tests/apps/scoped_env.h"
#include "tests/core/message_of.h"

namespace tessera::apps {
namespace {

using testing::message_of;

const std::string kModel = TESSERA_SOURCE_DIR "/models/tessera-13m";

EngineOptions small_options() {
  return scoring_options({.dtype = DType::f32, .max_context = 256, .kv_bytes = 16 << 20});
}

TEST(RunArguments, AreAModelAndAPrompt) {
  EXPECT_EQ(read_run_arguments({}).model, "");
  EXPECT_FALSE(read_run_arguments({}).prompt);
  const RunArguments both = read_run_arguments({"folder", "text"});
  EXPECT_EQ(both.model, "folder");
  EXPECT_EQ(both.prompt, "text");
}

TEST(RunArguments, TakeWordsWithSpacesForThePromptUnlessTheyAreAFolder) {
  EXPECT_EQ(read_run_arguments({"The city of"}).prompt, "The city of");
  EXPECT_EQ(read_run_arguments({"The city of"}).model, "");
  EXPECT_EQ(read_run_arguments({"typo/llama"}).model, "typo/llama");
  EXPECT_EQ(read_run_arguments({TESSERA_SOURCE_DIR}).model, TESSERA_SOURCE_DIR);
}

TEST(FindModel, TakesAFolderOrTheBundledModel) {
  EXPECT_EQ(find_model(kModel), kModel);
  EXPECT_EQ(find_model("").filename(), "tessera-13m");
  const ScopedEnv set("TESSERA_MODEL", kModel + "/.");
  EXPECT_EQ(find_model(""), kModel + "/.");
}

TEST(FindModel, RefusesWhatIsNoModelWithWhatToDo) {
  EXPECT_NE(message_of([] { find_model("/no/such"); }).find("there is no '/no/such'"),
            std::string::npos);
  EXPECT_NE(message_of([] { find_model(TESSERA_SOURCE_DIR); }).find("has no config.json"),
            std::string::npos);
  const ScopedEnv set("TESSERA_MODEL", "/no/such");
  EXPECT_NE(message_of([] { find_model(""); }).find("TESSERA_MODEL"), std::string::npos);
}

// With and without a head of its own, alone and with a draft that must answer alike.
TEST(RepeatingSubject, AnswersInACycle) {
  for (const auto& [is_tied, has_draft, has_tied_draft] : {std::tuple{false, false, false},
                                                           {true, false, false},
                                                           {false, true, false},
                                                           {false, true, true}}) {
    Subject subject{
        .name = "repeating", .config = model::load_config(kModel), .is_repeating = true};
    subject.config.num_layers = 2;
    subject.config.has_tied_embeddings = is_tied;
    EngineOptions options;
    options.dtype = DType::f32;
    options.max_context = 64;
    if (has_draft) {
      options.speculation = Speculation::draft;
      subject.draft = subject.config;
      subject.draft->num_layers = 1;
      subject.draft->has_tied_embeddings = has_tied_draft;
    }
    const auto engine = make_subject_engine(subject, engine::fill_options(options, subject.config));
    Request request;
    request.prompt = {46};
    request.max_new_tokens = 20;
    request.sampling.temperature = 0.0f;
    request.ignores_eos = true;
    const std::vector<SequenceOutput> outputs = run_to_end(*engine, request);
    ASSERT_EQ(outputs.front().tokens.size(), 20u) << outputs.front().error;
    for (int32_t i = 0; i < 20; ++i) {
      EXPECT_EQ(outputs.front().tokens[static_cast<size_t>(i)].token,
                is_tied || has_tied_draft ? 46 : 32 + (14 + i + 1) % 16);
    }
    const EngineMetrics metrics = engine->metrics();
    EXPECT_EQ(metrics.num_drafted_tokens > 10, has_draft);
    EXPECT_EQ(metrics.num_accepted_tokens, metrics.num_drafted_tokens);
  }
}

TEST(FindSubject, RefusesFlagsThatContradictEachOther) {
  const auto refusal = [](const SubjectFlags& flags, const std::string& draft = {}) {
    return message_of([&] { find_subject(flags, draft); });
  };
  EXPECT_EQ(refusal({.is_repeating = true}), "--repeating is for --shape; give one");
  EXPECT_EQ(refusal({.draft_shape = "llama3.2-1b"}),
            "--draft-shape is for --shape; for the model of a folder give --draft");
  EXPECT_EQ(refusal({.shape = "llama3-8b"}, kModel),
            "--draft is for the model of a folder; for --shape give --draft-shape");
  EXPECT_NE(refusal({.shape = "llama3-8b", .draft_shape = "llama4"}).find("no shape 'llama4'"),
            std::string::npos);
}

TEST(ModelOptions, TakeADraftForSpeculationByOne) {
  const model::ModelConfig config = model::load_config(kModel);
  ModelOptions options;
  options.device = "cpu";
  options.draft = kModel;
  EXPECT_NE(message_of([&] { engine_options(options, config); }).find("--speculate is off"),
            std::string::npos);
  options.speculate = "draft";
  const EngineOptions made = engine_options(options, config);
  EXPECT_EQ(made.speculation, Speculation::draft);
  EXPECT_EQ(made.draft_folder, kModel);
}

TEST(ModelOptions, LimitAStepWhereTheyAreAskedTo) {
  const model::ModelConfig config = model::load_config(kModel);
  ModelOptions options;
  options.device = "cpu";
  EXPECT_FALSE(engine_options(options, config).step_timeout_s.has_value());
  options.step_timeout = 2.5;
  EXPECT_EQ(engine_options(options, config).step_timeout_s, 2.5);
  options.step_timeout = -1;
  EXPECT_THROW(engine_options(options, config), UsageError);
}

TEST(ParseDevice, TakesTheCpuAndNumberedGpus) {
  EXPECT_EQ(parse_kv_type("int4_token"), KvFormat::int4_token);
  EXPECT_THROW(parse_kv_type("int3"), UsageError);
  EXPECT_EQ(parse_device("cpu"), cpu_device());
  EXPECT_EQ(parse_device("cuda"), cuda_device(0));
  EXPECT_EQ(parse_device("cuda:3"), cuda_device(3));
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99"}) {
    EXPECT_THROW(parse_device(text), UsageError) << text;
  }
}

TEST(MakeRequest, ReadsSeedsBiasesAndTokens) {
  SamplingOptions options;
  options.seed = "18446744073709551615";
  options.logit_bias = {"42:-5.5", "7:100"};
  options.stop_tokens = {"3"};
  const Request request = make_request(options);
  EXPECT_EQ(request.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(request.sampling.logit_bias[0], (std::pair<int32_t, float>(42, -5.5f)));
  EXPECT_EQ(request.stop_tokens, std::vector<int32_t>{3});
  EXPECT_FALSE(make_request({}).sampling.seed);
}

TEST(MakeRequest, RefusesWhatItCannotRead) {
  for (const char* text : {"42", "x:1", "1:x", ":", "1:2:3"}) {
    SamplingOptions options;
    options.logit_bias = {text};
    EXPECT_THROW(make_request(options), UsageError) << text;
  }
  SamplingOptions seed, stop, outputs;
  seed.seed = "-1";
  EXPECT_THROW(make_request(seed), UsageError);
  stop.stop_tokens = {"a"};
  EXPECT_THROW(make_request(stop), UsageError);
  outputs.num_outputs = int64_t{1} << 40;
  EXPECT_THROW(make_request(outputs), UsageError);
}

TEST(ChatCommands, AreBareWordsWithASlash) {
  EXPECT_EQ(parse_chat_command("/help"), ChatCommand::help);
  EXPECT_EQ(parse_chat_command("  /quit "), ChatCommand::quit);
  EXPECT_EQ(parse_chat_command("/reset"), ChatCommand::reset);
  EXPECT_EQ(parse_chat_command("/rest"), ChatCommand::unknown);
  EXPECT_EQ(parse_chat_command("/usr/bin is a folder"), ChatCommand::none);
  EXPECT_EQ(parse_chat_command("hello /quit"), ChatCommand::none);
  EXPECT_EQ(parse_chat_command(""), ChatCommand::none);
}

TEST(Conversation, KeepsTheSystemsWordsThroughAReset) {
  Conversation conversation("Be brief.");
  conversation.ask("Hi");
  conversation.answer("Hello");
  ASSERT_EQ(conversation.messages().size(), 3u);
  EXPECT_EQ(conversation.messages()[2].role, "assistant");
  conversation.reset();
  ASSERT_EQ(conversation.messages().size(), 1u);
  EXPECT_EQ(conversation.messages()[0].role, "system");
}

TEST(FitToContext, CutsWhatIsGeneratedAndRefusesAPromptThatIsTooLong) {
  Request request = {.prompt = std::vector<int32_t>(10), .max_new_tokens = 100};
  fit_to_context(request, 32);
  EXPECT_EQ(request.max_new_tokens, 22);
  request.prompt.resize(32);
  EXPECT_NE(message_of([&] { fit_to_context(request, 32); }).find("32 tokens"), std::string::npos);
}

TEST(Generate, StreamsTheTextAndTimesIt) {
  const auto engine = Engine::load(kModel, small_options());
  const PromptMaker prompts(*engine->tokenizer(), load_chat_settings(kModel));
  Request request = {.prompt = prompts.continuation("The city of", false), .max_new_tokens = 16};
  request.sampling.temperature = 0;
  std::string streamed;
  const Generation made =
      generate(*engine, request, [&](std::string_view text) { streamed += text; });
  ASSERT_EQ(made.outputs.size(), 1u);
  EXPECT_EQ(made.outputs[0].text, streamed);
  EXPECT_EQ(made.outputs[0].tokens.size(), 16u);
  EXPECT_EQ(made.outputs[0].finish, FinishReason::length);
  EXPECT_EQ(made.speeds.num_prompt_tokens, 4);
  EXPECT_EQ(made.speeds.num_generated_tokens, 16);
  EXPECT_GT(made.speeds.decode_rate(), 0);
  EXPECT_NE(show(made.speeds).find("16 generated"), std::string::npos);
}

TEST(Generate, EndsSoonAfterItIsStopped) {
  const auto engine = Engine::load(kModel, small_options());
  Request request = {.prompt = {0, 436, 1136}, .max_new_tokens = 200, .ignores_eos = true};
  int num_asked = 0;
  const Generation made = generate(*engine, request, {}, [&] { return ++num_asked > 5; });
  EXPECT_EQ(made.outputs[0].finish, FinishReason::cancelled);
  EXPECT_LT(made.outputs[0].tokens.size(), 10u);
}

// The two ways of scoring must agree: a token forced by its bias, and the prompt's own logprobs.
TEST(Score, OfOneTokenIsTheDifferenceOfTwoLongerOnes) {
  const auto engine = Engine::load(kModel, small_options());
  const std::vector<int32_t> tokens = {0, 436, 1136, 281, 3166, 203};
  const std::vector<ScoreJob> jobs = {
      {.tokens = tokens, .num_scored = 1},
      {.tokens = tokens, .num_scored = 3},
      {.tokens = {tokens.begin(), tokens.end() - 1}, .num_scored = 2}};
  std::vector<double> scores(jobs.size(), 1.0);
  score(
      *engine, 3, [&](int64_t i) { return jobs[static_cast<size_t>(i)]; },
      [&](int64_t i, double value) { scores[static_cast<size_t>(i)] = value; });
  EXPECT_LT(scores[0], 0.0);
  EXPECT_NEAR(scores[0], scores[1] - scores[2], 1e-4);
}

TEST(Score, RefusesAJobWithNothingBeforeIt) {
  const auto engine = Engine::load(kModel, small_options());
  const auto run = [&] {
    score(
        *engine, 1,
        [](int64_t) {
          return ScoreJob{.tokens = {1, 2}, .num_scored = 2};
        },
        [](int64_t, double) {});
  };
  EXPECT_NE(message_of(run).find("2 of 2 tokens"), std::string::npos);
}

TEST(RunE2e, TimesEveryDecodingStepOfTheTimedPasses) {
  const E2eShape shape = {.batch = 3, .prompt = 20, .generate = 8};
  const EngineOptions options = e2e_options({.dtype = DType::f32}, shape, 16 * 6144);
  const auto engine = Engine::load(kModel, options);
  const E2eResult result = run_e2e(*engine, shape, 1, 2);
  EXPECT_EQ(result.step_seconds.size(), 16u);
  EXPECT_GT(result.prefill_rate(), 0);
  EXPECT_GT(result.decode_rate(), 0);
  EXPECT_GT(result.metrics.weight_bytes, 0);
  EXPECT_EQ(result.metrics.num_preemptions, 0);
  // The last steps hold 28 tokens of each sequence in two pages of 16.
  EXPECT_EQ(result.metrics.num_held_pages, 6);
  EXPECT_NEAR(result.metrics.kv_waste, 1.0 - 28.0 / 32.0, 0.07);
}

}  // namespace
}  // namespace tessera::apps
