// Requests with constraints: what they generate satisfies them, alone and in any schedule.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera {
namespace {

using namespace tessera::testing;

const std::string kFolder = TESSERA_SOURCE_DIR "/models/tessera-13m";
constexpr int64_t kVocab = 8192;  // of the bundled tokenizer
constexpr int32_t kEnd = 1;       // <|end_of_text|>

std::unique_ptr<engine::EngineImpl> random_engine(EngineOptions options) {
  model::ModelConfig config = tiny_config(kVocab);
  config.eos_tokens = {kEnd};
  return engine_over(tiny_model(config), options, Tokenizer::load(kFolder + "/tokenizer.json"));
}

std::vector<ConstraintSpec> specs() {
  return {{.text = R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},
                       "age":{"type":"integer","minimum":0,"maximum":120}},
                       "required":["name","age"]})"},
          {.kind = ConstraintKind::regex, .text = "[a-f]{3,8}(-[0-9]{2}){0,2}"},
          {.kind = ConstraintKind::choice, .choices = {"yes", "no", "maybe so"}},
          {.kind = ConstraintKind::grammar,
           .text = "root ::= term (\" + \" term){0,3}\nterm ::= [0-9] | \"(\" root \")\""},
          {.kind = ConstraintKind::json_object}};
}

Request request_with(std::optional<ConstraintSpec> spec, uint64_t seed) {
  Request request;
  request.prompt = {static_cast<int32_t>(10 + seed % 7), 20, 30, 40, 50};
  request.sampling.seed = seed;
  request.sampling.temperature = 1.0f;
  request.max_new_tokens = 40;
  request.constraint_spec = std::move(spec);
  return request;
}

TEST(Constraint, OutputsSatisfyIt) {
  const auto engine = random_engine(tiny_options());
  int num_finished = 0;
  for (const ConstraintSpec& spec : specs()) {
    const auto constraint = Constraint::compile(spec);
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Outcome outcome = run_one(*engine, request_with(spec, seed));
      ASSERT_EQ(outcome.error, "");
      if (outcome.finish == FinishReason::stop) {
        ++num_finished;
        EXPECT_TRUE(constraint->matches(outcome.text)) << name(spec.kind) << ": " << outcome.text;
      } else {
        EXPECT_EQ(outcome.finish, FinishReason::length);
        EXPECT_EQ(outcome.tokens.size(), 40u);
      }
    }
  }
  EXPECT_GE(num_finished, 20);
  EXPECT_GT(engine->metrics().num_masks, 200);
}

TEST(Constraint, EndsWhereNothingCanFollow) {
  const auto engine = random_engine(tiny_options());
  const ConstraintSpec spec{.kind = ConstraintKind::choice, .choices = {"abc"}};
  for (const bool ignores_eos : {false, true}) {
    Request request = request_with(spec, 3);
    request.ignores_eos = ignores_eos;
    request.min_new_tokens = 30;  // cannot be had
    const Outcome outcome = run_one(*engine, request);
    EXPECT_EQ(outcome.text, "abc");
    EXPECT_EQ(outcome.finish, FinishReason::stop);
    EXPECT_NE(outcome.tokens.back(), kEnd);
  }
}

TEST(Constraint, ATextThatMustBeEmptyEndsAtOnce) {
  const auto engine = random_engine(tiny_options());
  for (const bool ignores_eos : {false, true}) {
    Request request = request_with({{.kind = ConstraintKind::regex, .text = ""}}, 3);
    request.ignores_eos = ignores_eos;
    request.min_new_tokens = 2;  // cannot be had
    const Outcome outcome = run_one(*engine, request);
    EXPECT_EQ(outcome.text, "");
    EXPECT_EQ(outcome.finish, FinishReason::stop) << outcome.error;
    EXPECT_EQ(outcome.tokens, std::vector<int32_t>{kEnd});
  }
}

// Where the text may go on, the end of text is one of the choices: a bias makes it the only one.
TEST(Constraint, EndOfTextIsAllowedWhereTheTextIsComplete) {
  const auto engine = random_engine(tiny_options());
  Request request = request_with({{.kind = ConstraintKind::regex, .text = "[0-9]{3,}"}}, 5);
  request.sampling.logit_bias = {{kEnd, 100.0f}};
  Outcome outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.tokens.back(), kEnd);
  EXPECT_GE(outcome.text.size(), 3u);
  EXPECT_LE(outcome.text.size(), 5u);

  request.min_new_tokens = 20;
  outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.tokens.size(), 21u);
  request.min_new_tokens = 0;
  request.ignores_eos = true;
  EXPECT_EQ(run_one(*engine, request).finish, FinishReason::length);

  request.stop_tokens = {4};  // <|eot_id|>, a special token
  request.sampling.logit_bias = {{4, 100.0f}};
  outcome = run_one(*engine, request);
  EXPECT_EQ(outcome.finish, FinishReason::stop);
  EXPECT_EQ(outcome.tokens.back(), 4);
  EXPECT_GE(outcome.text.size(), 3u);
}

TEST(Constraint, StopStringsAndLogprobsWorkAsAlways) {
  const auto engine = random_engine(tiny_options());
  Request request = request_with({{.kind = ConstraintKind::regex, .text = "(ab){20}"}}, 1);
  request.stop = {"bab"};
  request.num_logprobs = 2;
  const auto outputs = run_to_end(*engine, request);
  EXPECT_EQ(outputs.front().text, "a");
  EXPECT_EQ(outputs.front().finish, FinishReason::stop);
  for (const OutputToken& token : outputs.front().tokens) {
    ASSERT_EQ(token.top.size(), 2u);
    // The model's own distribution: the best tokens are hardly those that the constraint allows.
    EXPECT_GE(token.top[0].logprob, token.logprob);
    EXPECT_LT(token.logprob, 0.0f);
  }
}

TEST(Constraint, ACompiledOneIsShared) {
  const auto first = random_engine(tiny_options()), second = random_engine(tiny_options());
  Request request = request_with({}, 9);
  request.constraint = Constraint::compile({.kind = ConstraintKind::regex, .text = "[a-z]{5}"});
  EXPECT_EQ(run_one(*first, request).text, run_one(*second, request).text);
}

TEST(Constraint, Refusals) {
  const auto engine = random_engine(tiny_options());
  const auto why = [&](engine::EngineImpl& one, const Request& request) {
    try {
      one.submit(request);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  Request request = request_with({{.kind = ConstraintKind::regex, .text = "a"}}, 1);
  request.beam_width = 2;
  EXPECT_NE(why(*engine, request).find("constraint is not for beam_width"), std::string::npos);
  request.beam_width = 0;
  request.constraint = Constraint::compile(*request.constraint_spec);
  EXPECT_NE(why(*engine, request).find("give one of them"), std::string::npos);
  request = request_with({{.kind = ConstraintKind::regex, .text = "a("}}, 1);
  EXPECT_NE(why(*engine, request).find("'(' without ')'"), std::string::npos);
  request = request_with({{.kind = ConstraintKind::regex, .text = "a"}}, 1);
  EXPECT_NE(why(*tiny_engine(tiny_options(), kVocab), request).find("needs a tokenizer"),
            std::string::npos);
}

// A grammar that can be read in too many ways ends its own request, and no other.
TEST(Constraint, AnAmbiguousGrammarFailsItsRequestAlone) {
  const auto engine = random_engine(tiny_options());
  std::string text = "root ::= ", rules;
  for (int i = 0; i < 300; ++i) {
    text += concat(i > 0 ? " | " : "", "r", i, " \"!\"");
    rules += concat("\nr", i, " ::= \"a\" r", i, "? [a-z]");
  }
  text += rules;
  const auto bad =
      engine->submit(request_with({{.kind = ConstraintKind::grammar, .text = text}}, 1));
  const auto good = engine->submit(request_with(specs()[2], 2));
  Outcomes outcomes;
  run_all(*engine, outcomes);
  EXPECT_EQ((outcomes[{*bad, 0}].finish), FinishReason::error);
  EXPECT_NE((outcomes[{*bad, 0}].error.find("ways")), std::string::npos);
  EXPECT_EQ((outcomes[{*good, 0}].finish), FinishReason::stop);
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.logprobs, want.logprobs) << what;
  EXPECT_EQ(got.text, want.text) << what;
  EXPECT_EQ(got.finish, want.finish) << what;
}

// Requests with and without constraints, alone and together, with few pages, run ahead or not, with
// drafts or not: every output is the same, bit for bit.
TEST(Constraint, OutputsAreAlikeInAnySchedule) {
  std::vector<Request> requests;
  const std::vector<ConstraintSpec> all = specs();
  for (uint64_t i = 0; i < 18; ++i) {
    const bool is_free = i % 6 == 5;
    Request request = request_with(
        is_free ? std::optional<ConstraintSpec>() : std::optional(all[i % all.size()]), i);
    request.max_new_tokens = 6 + static_cast<int64_t>(i) * 2;
    request.sampling.temperature = i % 4 == 0 ? 0.0f : 1.0f;
    request.num_logprobs = i % 3 == 0 ? 1 : -1;
    if (i % 7 == 3) request.num_outputs = 3;
    if (i % 5 == 2) request.sampling.frequency_penalty = 0.5f;
    requests.push_back(request);
  }
  std::vector<Outcomes> alone;
  const auto plain = random_engine(tiny_options());
  for (const Request& request : requests) {
    Outcomes outcomes;
    plain->submit(request);
    run_all(*plain, outcomes);
    alone.push_back(std::move(outcomes));
  }
  int64_t num_preemptions = 0, num_accepted = 0;
  std::mt19937 random(3);
  for (int schedule = 0; schedule < 12; ++schedule) {
    EngineOptions options = tiny_options(schedule % 3 == 0 ? 33 : 96);
    options.runs_ahead = schedule % 2 == 0;
    options.max_batch = 3 + schedule;
    options.speculation = schedule % 4 >= 2 ? Speculation::lookup : Speculation::off;
    options.max_step_tokens = 8 + static_cast<int64_t>(random() % 24);
    const auto engine = random_engine(options);
    Outcomes together;
    std::vector<RequestId> ids(requests.size());
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      ids[i] = *engine->submit(requests[i]);
      if (random() % 2 == 0) collect(engine->step(), together);
    }
    run_all(*engine, together);
    for (size_t i = 0; i < requests.size(); ++i) {
      for (int32_t index = 0; index < requests[i].num_outputs; ++index) {
        const Outcome& want = alone[i].begin()->first.second == 0
                                  ? alone[i][{alone[i].begin()->first.first, index}]
                                  : alone[i].begin()->second;
        expect_same(together[{ids[i], index}], want,
                    concat("schedule ", schedule, ", request ", i));
      }
    }
    num_preemptions += engine->metrics().num_preemptions;
    num_accepted += engine->metrics().num_accepted_tokens;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_preemptions, 0);
  std::printf("%ld preemptions, %ld drafted tokens accepted\n", static_cast<long>(num_preemptions),
              static_cast<long>(num_accepted));
}

// A step with constraints is launched before the tokens of the one before are known, as any other.
TEST(Constraint, StepsRunAhead) {
  for (const bool is_constrained : {false, true}) {
    EngineOptions options = tiny_options();
    options.runs_ahead = true;
    const auto engine = random_engine(options);
    const ConstraintSpec spec{.kind = ConstraintKind::regex, .text = "[0-9]{100}"};
    for (uint64_t seed = 0; seed < 4; ++seed) {
      engine->submit(request_with(is_constrained ? std::optional(spec) : std::nullopt, seed));
    }
    for (int64_t step = 1; step < 10; ++step) {
      EXPECT_EQ(engine->step().size(), 4u);
      EXPECT_EQ(engine->metrics().num_steps, step + 1) << is_constrained;
    }
  }
}

// A step that fails while the next one awaits its draws, or whose own draws fail: its requests end,
// those that waited are as they would be alone.
TEST(Constraint, AFailureAroundLateDrawsEndsTheBatchAlone) {
  const auto request_of = [](uint64_t number) {
    Request request = request_with({{.kind = ConstraintKind::regex, .text = "[a-z]{300}"}}, number);
    request.max_new_tokens = 12;
    return request;
  };
  std::vector<Outcome> alone;
  const auto plain = random_engine(tiny_options());
  for (uint64_t i = 0; i < 6; ++i) alone.push_back(run_one(*plain, request_of(i)));
  using engine::StepStage;
  for (const StepStage stage : {StepStage::wait, StepStage::sample, StepStage::forward}) {
    SCOPED_TRACE(name(stage));
    EngineOptions options = tiny_options();
    options.max_batch = 3;
    options.runs_ahead = true;
    const auto engine = random_engine(options);
    std::vector<RequestId> ids;
    for (uint64_t i = 0; i < 6; ++i) ids.push_back(engine->submit(request_of(i)).value());
    Outcomes outcomes;
    for (int i = 0; i < 4; ++i) collect(engine->step(), outcomes);
    engine->on_stage([&, was_thrown = false, last = StepStage::idle](StepStage entered) mutable {
      const bool is_draw = entered == StepStage::forward && last == StepStage::commit;
      last = entered;
      if (entered != stage || (stage == StepStage::forward && !is_draw)) return;
      if (!std::exchange(was_thrown, true)) throw Error("no room for 64 bytes");
    });
    collect(engine->step(), outcomes);
    engine->check_pages();
    EXPECT_FALSE(engine->metrics().is_dead);
    run_all(*engine, outcomes);
    for (size_t i = 0; i < ids.size(); ++i) {
      const Outcome& outcome = outcomes[{ids[i], 0}];
      if (i >= 3) {
        EXPECT_EQ(outcome.tokens, alone[i].tokens) << i;
        EXPECT_EQ(outcome.finish, FinishReason::length);
        continue;
      }
      EXPECT_EQ(outcome.finish, FinishReason::error) << i;
      EXPECT_EQ(outcome.error, "no room for 64 bytes");
      // The step before draws that fail was committed.
      EXPECT_EQ(outcome.tokens.size(), stage == StepStage::forward ? 5u : 4u);
    }
    EXPECT_EQ(engine->metrics().num_held_pages, 0);
  }
}

// Drafts that the constraint refuses are dropped, and right ones save steps.
TEST(Constraint, DraftsObeyIt) {
  EngineOptions options = tiny_options();
  Request request = request_with({{.kind = ConstraintKind::regex, .text = "(abcabd){6}"}}, 4);
  request.max_new_tokens = 60;
  const auto plain = random_engine(options);
  const Outcome want = run_one(*plain, request);
  options.max_batch = 16;
  options.speculation = Speculation::lookup;
  const auto fast = random_engine(options);
  expect_same(run_one(*fast, request), want, "with drafts");
  EXPECT_EQ(want.text, "abcabdabcabdabcabdabcabdabcabdabcabd");
  EXPECT_GT(fast->metrics().num_accepted_tokens, 0);
}

// The share of a step that masks take for the bundled model at batch 16. Printed; the bound only
// guards against masks that walk the vocabulary at every step.
TEST(Constraint, MasksAreASmallPartOfAStep) {
  EngineOptions options;
  options.max_context = 256;
  options.max_batch = 16;
  const std::unique_ptr<Engine> engine = Engine::load(kFolder, options);
  const auto run = [&](uint64_t seed) {
    for (uint64_t i = 0; i < 16; ++i) {
      Request request = request_with(specs()[i % 2 == 0 ? 0 : 4], seed + i);
      request.max_new_tokens = 48;
      engine->submit(request);
    }
    while (engine->has_work()) engine->step();
  };
  run(1);
  const EngineMetrics before = engine->metrics();
  const auto start = std::chrono::steady_clock::now();
  run(100);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const EngineMetrics after = engine->metrics();
  const double seconds = after.mask_seconds - before.mask_seconds;
  const auto num_masks = static_cast<double>(after.num_masks - before.num_masks);
  const auto num_steps = static_cast<double>(after.num_steps - before.num_steps);
  std::printf("%.2f us a mask, %.1f us of %.1f us a step: %.2f %%\n", 1e6 * seconds / num_masks,
              1e6 * seconds / num_steps, 1e6 * took.count() / num_steps,
              100 * seconds / took.count());
  EXPECT_LT(seconds, 0.2 * took.count());
}

}  // namespace
}  // namespace tessera
