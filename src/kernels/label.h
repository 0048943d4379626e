// Names of rows, made from the types and sizes they are compiled for.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tessera::kernels {

// Words joined by underscores, at compile time: Label().word("bf16").word("d", 128) is "bf16_d128".
struct Label {
  char text[40] = {};
  size_t size = 0;

  constexpr Label word(std::string_view more) const {
    Label label = *this;
    if (size > 0) label.text[label.size++] = '_';
    for (const char c : more) label.text[label.size++] = c;
    return label;
  }
  constexpr Label word(std::string_view before, int number) const {
    Label label = word(before);
    int unit = 1;
    while (number / unit >= 10) unit *= 10;
    for (; unit > 0; unit /= 10) {
      label.text[label.size++] = static_cast<char>('0' + number / unit % 10);
    }
    return label;
  }
  // Of a label that lives as long as the view, such as a constexpr variable.
  constexpr operator std::string_view() const& { return {text, size}; }
};

// Several arrays of rows as one table.
template <class T, size_t... kSizes>
constexpr auto joined(const std::array<T, kSizes>&... parts) {
  std::array<T, (kSizes + ...)> all{};
  size_t at = 0;
  const auto add = [&](const auto& part) {
    for (const T& row : part) all[at++] = row;
  };
  (add(parts), ...);
  return all;
}

}  // namespace tessera::kernels
