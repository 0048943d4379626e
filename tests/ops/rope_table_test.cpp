// The angles of rotary embedding against values derived by hand from the models' definitions.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "tessera/ops/rope.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Relative error of a handful of double operations.
constexpr double kClose = 1e-14;

void expect_ratio(double got, double of, double ratio) {
  EXPECT_NEAR(got / of, ratio, kClose * ratio);
}

// theta^(-2i/d) by repeated multiplication: each is the one before times theta^(-2/d).
TEST(RopeFrequencies, FormAGeometricSeries) {
  const std::vector<double> plain = rope_frequencies(128, 10000.0, {});
  ASSERT_EQ(plain.size(), 64u);
  EXPECT_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[32], 0.01, 0.01 * kClose);
  double frequency = 1.0;
  for (double value : plain) {
    EXPECT_NEAR(value, frequency, 1e-13 * frequency);
    frequency *= std::exp(-std::log(10000.0) / 64.0);
  }
}

TEST(RopeFrequencies, LinearScalingDividesThemAll) {
  const std::vector<double> plain = rope_frequencies(64, 500000.0, {});
  const std::vector<double> scaled =
      rope_frequencies(64, 500000.0, {.kind = RopeScalingKind::linear, .factor = 4.0});
  for (size_t i = 0; i < plain.size(); ++i) expect_ratio(scaled[i], plain[i], 0.25);
}

// Llama 3.1: factor 8, low 1, high 4, 8192 positions, theta 500000, head_dim 128. By wavelength:
// shorter than 8192 / 4 = 2048 tokens stays, longer than 8192 slows by 8, and between, with
// s = (8192 / wavelength - 1) / 3, the frequency is multiplied by (1 - s) / 8 + s. The wavelength
// of pair i is 2 pi 500000^(i / 64), so it passes 2048 at i = 28.2 and 8192 at i = 35.0.
TEST(RopeFrequencies, Llama3KeepsShortWavesSlowsLongOnesAndBlendsBetween) {
  const RopeScaling llama3{.kind = RopeScalingKind::llama3,
                           .factor = 8.0,
                           .low_freq_factor = 1.0,
                           .high_freq_factor = 4.0,
                           .original_max_positions = 8192,
                           .attention_factor = {}};
  const std::vector<double> plain = rope_frequencies(128, 500000.0, {});
  const std::vector<double> scaled = rope_frequencies(128, 500000.0, llama3);
  for (size_t i = 0; i < 64; ++i) {
    const double wavelength = 2.0 * std::numbers::pi / plain[i];
    if (i <= 28) {
      EXPECT_LT(wavelength, 2048.0);
      EXPECT_EQ(scaled[i], plain[i]) << i;
    } else if (i >= 35) {
      EXPECT_GT(wavelength, 8192.0);
      expect_ratio(scaled[i], plain[i], 0.125);
    } else {
      const double s = (8192.0 / wavelength - 1.0) / 3.0;
      expect_ratio(scaled[i], plain[i], (1.0 - s) / 8.0 + s);
    }
  }
  // One in figures: pair 32 has frequency 1 / sqrt(500000) = 1.4142136e-3, so 8192 / wavelength is
  // 1.8438478, s is 0.2812826, and the ratio 0.3711223.
  EXPECT_NEAR(scaled[32] / plain[32], 0.3711223, 1e-7);
}

// Llama 2 stretched to 64k by YaRN: theta 10000, head_dim 128, 4096 positions, factor 16. Pair i
// turns 4096 / (2 pi 10000^(i / 64)) times: 32 times at i = 20.94 and once at i = 45.03; so the
// ramp runs from 20 (rounded down) to 46 (rounded up), and pair 33 stands in its middle.
TEST(RopeFrequencies, YarnRampsAlongThePairs) {
  const RopeScaling yarn{.kind = RopeScalingKind::yarn,
                         .factor = 16.0,
                         .original_max_positions = 4096,
                         .attention_factor = {}};
  const std::vector<double> plain = rope_frequencies(128, 10000.0, {});
  const std::vector<double> scaled = rope_frequencies(128, 10000.0, yarn);
  for (size_t i = 0; i <= 20; ++i) expect_ratio(scaled[i], plain[i], 1.0);
  for (size_t i = 46; i < 64; ++i) expect_ratio(scaled[i], plain[i], 1.0 / 16.0);
  expect_ratio(scaled[33], plain[33], (1.0 + 1.0 / 16.0) / 2.0);
  for (size_t i = 21; i < 46; ++i) {
    expect_ratio(scaled[i], plain[i], 1.0 - 15.0 / 16.0 * static_cast<double>(i - 20) / 26.0);
  }
}

// A short model: both ends of the ramp are cut to the pairs there are.
TEST(RopeFrequencies, YarnCutsItsRampToTheTable) {
  const RopeScaling yarn{.kind = RopeScalingKind::yarn,
                         .factor = 4.0,
                         .original_max_positions = 100,
                         .attention_factor = {}};
  const std::vector<double> scaled = rope_frequencies(4, 2.0, yarn);
  // Turns once at i = 2 ln(100 / 2 pi) / ln 2 = 7.98, beyond the last index 3; 32 times below 0.
  expect_ratio(scaled[0], 1.0, 1.0);
  expect_ratio(scaled[1], std::sqrt(0.5), 1.0 - 0.75 / 3.0);
}

TEST(RopeTable, HoldsCosinesThenSinesRoundedOnce) {
  const Tensor table = make_rope_table(300000, 4, 10000.0);
  ASSERT_EQ(to_string(table), "f32[300000, 4] on cpu");
  for (int64_t position : {int64_t{0}, int64_t{1}, int64_t{131073}, int64_t{299999}}) {
    const float* row = table.view().as<float>() + 4 * position;
    const double at = static_cast<double>(position);
    EXPECT_EQ(row[0], static_cast<float>(std::cos(at)));
    EXPECT_EQ(row[1], static_cast<float>(std::cos(at * 0.01)));
    EXPECT_EQ(row[2], static_cast<float>(std::sin(at)));
    EXPECT_EQ(row[3], static_cast<float>(std::sin(at * 0.01)));
  }
}

// At position 0 the cosines are 1 times the attention factor: 0.1 ln 16 + 1, or the one given.
TEST(RopeTable, YarnScalesByTheAttentionFactor) {
  RopeScaling yarn{.kind = RopeScalingKind::yarn,
                   .factor = 16.0,
                   .original_max_positions = 4096,
                   .attention_factor = {}};
  EXPECT_FLOAT_EQ(make_rope_table(1, 8, 10000.0, yarn).view().as<float>()[0], 1.27725887f);
  yarn.attention_factor = 0.5;
  EXPECT_EQ(make_rope_table(1, 8, 10000.0, yarn).view().as<float>()[3], 0.5f);
  yarn.attention_factor.reset();
  yarn.factor = 0.5;
  EXPECT_EQ(make_rope_table(1, 8, 10000.0, yarn).view().as<float>()[0], 1.0f);
}

// A table filled in any steps has the bits of one made at once, and its rows stay where they are.
TEST(RopeTable, MadeInStepsHasTheRowsOfTheTableMadeWhole) {
  const RopeScaling yarn{.kind = RopeScalingKind::yarn,
                         .factor = 4.0,
                         .original_max_positions = 512,
                         .attention_factor = {}};
  for (const RopeScaling& scaling : {RopeScaling{}, yarn}) {
    constexpr int64_t kPositions = 1000;
    const Tensor whole = make_rope_table(kPositions, 64, 10000.0, scaling);
    RopeTable table(kPositions, 64, 10000.0, scaling, cpu_device());
    EXPECT_EQ(table.num_made(), 0);
    EXPECT_EQ(to_string(table.view()), "f32[1000, 64] on cpu");
    const void* const data = table.view().data;
    int64_t num_made = 0;
    for (const int64_t wanted : {1, 1, 255, 256, 257, 700, 3, 1000, 5000}) {
      table.make_rows(wanted);
      EXPECT_GE(table.num_made(), std::min<int64_t>(wanted, kPositions));
      EXPECT_GE(table.num_made(), num_made);
      num_made = table.num_made();
      EXPECT_EQ(table.view().data, data);
      EXPECT_EQ(
          std::memcmp(data, whole.view().data, static_cast<size_t>(num_made * 64) * sizeof(float)),
          0)
          << wanted;
    }
    EXPECT_EQ(num_made, kPositions);
  }
}

TEST(RopeTable, RefusesWhatHasNoMeaning) {
  const auto frequencies = [](int64_t dim, double theta, const RopeScaling& scaling) {
    return [=] { rope_frequencies(dim, theta, scaling); };
  };
  EXPECT_TRUE(refused(frequencies(7, 1e4, {}), {"rotary_dim is 7", "even"}));
  EXPECT_TRUE(refused(frequencies(8, -1.0, {}), {"theta is -1", "positive"}));
  RopeScaling scaling{.kind = RopeScalingKind::linear, .factor = 0.0, .attention_factor = {}};
  EXPECT_TRUE(refused(frequencies(8, 1e4, scaling), {"factor is 0", "positive"}));
  scaling = {.kind = RopeScalingKind::yarn, .factor = 2.0, .attention_factor = {}};
  EXPECT_TRUE(refused(frequencies(8, 1e4, scaling), {"original_max_positions is 0"}));
  scaling.original_max_positions = 10;
  scaling.beta_slow = 64.0;
  EXPECT_TRUE(refused(frequencies(8, 1e4, scaling), {"beta_slow is 64", "beta_fast 32"}));
  scaling.kind = RopeScalingKind::llama3;
  scaling.high_freq_factor = 1.0;
  EXPECT_TRUE(refused(frequencies(8, 1e4, scaling), {"high_freq_factor 1", "below"}));
  EXPECT_TRUE(refused([] { make_rope_table(-1, 8, 1e4); }, {"num_positions is -1"}));
}

}  // namespace
}  // namespace tessera::testing
