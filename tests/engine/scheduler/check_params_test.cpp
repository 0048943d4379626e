// Sampling parameters outside their range are refused by name.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tessera/engine/sampling.h"
#include "tests/core/message_of.h"

namespace tessera {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string refusal_of(const SamplingParams& params) {
  return testing::message_of([&] { check(params, 100); });
}

template <class T>
void expect_refused(T SamplingParams::*field, std::initializer_list<T> values, const char* text) {
  for (const T value : values) {
    SamplingParams params;
    params.*field = value;
    EXPECT_NE(refusal_of(params).find(text), std::string::npos)
        << value << ": " << refusal_of(params);
  }
}

TEST(CheckSamplingParams, AcceptsTheDefaultsAndTheEdgesOfEachRange) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_EQ(refusal_of({.temperature = 0.0f, .top_p = 1e-6f, .typical_p = 1e-6f}), "");
  EXPECT_EQ(refusal_of({.temperature = 10.0f, .top_k = 1 << 30, .min_p = 1.0f}), "");
  EXPECT_EQ(refusal_of({.repetition_penalty = 10.0f,
                        .presence_penalty = -2.0f,
                        .frequency_penalty = 2.0f,
                        .logit_bias = {{0, -100.0f}, {99, 1e9f}}}),
            "");
}

TEST(CheckSamplingParams, NamesTheFieldAndItsRange) {
  using P = SamplingParams;
  expect_refused(&P::temperature, {kNan, kInfinity, -1.0f, 100.0f}, "; give 0 to 10");
  expect_refused(&P::top_k, {-1, -5}, "; give a positive number, or 0");
  expect_refused(&P::top_p, {kNan, 0.0f, -0.1f, 1.1f}, "; give more than 0, up to 1");
  expect_refused(&P::min_p, {kNan, -0.1f, 2.0f}, "; give 0 to 1");
  expect_refused(&P::typical_p, {kNan, 0.0f, 1.5f}, "; give more than 0, up to 1");
  expect_refused(&P::repetition_penalty, {kNan, 0.0f, -1.0f, 1e30f}, "more than 0, up to 10");
  expect_refused(&P::presence_penalty, {kNan, 1e30f, -2.1f}, "; give -2 to 2");
  expect_refused(&P::frequency_penalty, {kNan, 1e30f, -2.1f}, "; give -2 to 2");
  EXPECT_NE(refusal_of({.top_p = 1.5f}).find("top_p is 1.5"), std::string::npos);
}

TEST(CheckSamplingParams, BoundsTheBiases) {
  EXPECT_NE(refusal_of({.logit_bias = {{100, 1}}}).find("token 100; give 0 to 99"),
            std::string::npos);
  EXPECT_NE(refusal_of({.logit_bias = {{-1, 1}}}), "");
  EXPECT_NE(refusal_of({.logit_bias = {{7, kNan}}}).find("token 7 is nan"), std::string::npos);
  EXPECT_NE(refusal_of({.logit_bias = {{7, kInfinity}}}), "");
  SamplingParams many;
  many.logit_bias.resize(200000);
  EXPECT_NE(refusal_of(many).find("200000 entries; give at most 1024"), std::string::npos);
}

}  // namespace
}  // namespace tessera
