// Turns run-time values into compile-time constants, so that a flag costs a kernel nothing.
// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

namespace tessera::kernels {

// Calls f with the constant equal to `value`, or returns false:
//   with_constant<true, false>(is_causal, [&](auto causal) { run<causal()>(p); });
template <auto... kValues>
constexpr bool with_constant(auto value, auto&& f) {
  const auto matches = [&]<auto kValue>() {
    if (value != kValue) return false;
    f(std::integral_constant<decltype(kValue), kValue>{});
    return true;
  };
  return (matches.template operator()<kValues>() || ...);
}

}  // namespace tessera::kernels
