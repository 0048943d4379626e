// In which form the weights of linear layers are kept.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class WeightFormat : uint8_t {
  plain,  // in the type of activations
  int8,   // int8 codes with one scale per output, rounded to nearest
};

inline constexpr WeightFormat kAllWeightFormats[] = {WeightFormat::plain, WeightFormat::int8};

constexpr std::string_view name(WeightFormat format) {
  return format == WeightFormat::plain ? "plain" : "int8";
}

constexpr std::optional<WeightFormat> find_weight_format(std::string_view text) {
  for (const WeightFormat format : kAllWeightFormats) {
    if (name(format) == text) return format;
  }
  return std::nullopt;
}

}  // namespace tessera
