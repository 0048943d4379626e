// In which form the weights of linear layers are kept, and what they are multiplied by.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

// All but the first two quantise while the weights are loaded, rounding to nearest.
enum class WeightFormat : uint8_t {
  stored,     // as the checkpoint has them: codes stay codes, values take the type of activations
  plain,      // in the type of activations
  int8,       // int8 codes with one scale per output
  fp8,        // e4m3 codes with one scale per output
  fp8_block,  // e4m3 codes with one scale per block of 128 x 128
  int4,       // 4-bit codes with a scale and a zero point per group of inputs
};

struct WeightFormatName {
  WeightFormat format;
  std::string_view name;
};
inline constexpr WeightFormatName kWeightFormats[] = {
    {WeightFormat::stored, "stored"},       {WeightFormat::plain, "plain"},
    {WeightFormat::int8, "int8"},           {WeightFormat::fp8, "fp8"},
    {WeightFormat::fp8_block, "fp8_block"}, {WeightFormat::int4, "int4"},
};
inline constexpr int64_t kDefaultWeightGroup = 128;  // inputs per scale of int4

constexpr std::string_view name(WeightFormat format) {
  return kWeightFormats[static_cast<int>(format)].name;
}

// Whether weights are quantised while they are loaded.
constexpr bool is_quantizing(WeightFormat format) {
  return format != WeightFormat::stored && format != WeightFormat::plain;
}

constexpr std::optional<WeightFormat> find_weight_format(std::string_view text) {
  for (const WeightFormatName& one : kWeightFormats) {
    if (one.name == text) return one.format;
  }
  return std::nullopt;
}

// What linear layers with weights of 8-bit codes (i8 or e4m3) take as their inputs. Other layers
// take values whatever is asked.
enum class ActivationFormat : uint8_t {
  automatic,  // as the checkpoint asks; where weights are quantised while they are loaded, codes on
              // a GPU that multiplies them, and values elsewhere
  plain,      // values in the type of activations
  codes,      // codes of the weight's type, quantised on the way in: per token, or with a static
              // scale where the checkpoint has one
};

struct ActivationFormatName {
  ActivationFormat format;
  std::string_view name;
};
inline constexpr ActivationFormatName kActivationFormats[] = {{ActivationFormat::automatic, "auto"},
                                                              {ActivationFormat::plain, "plain"},
                                                              {ActivationFormat::codes, "8bit"}};

constexpr std::string_view name(ActivationFormat format) {
  return kActivationFormats[static_cast<int>(format)].name;
}

constexpr std::optional<ActivationFormat> find_activation_format(std::string_view text) {
  for (const ActivationFormatName& one : kActivationFormats) {
    if (one.name == text) return one.format;
  }
  return std::nullopt;
}

}  // namespace tessera
