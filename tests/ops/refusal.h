// What a call is refused with, compared by the words that matter.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "tessera/core/error.h"
#include "tessera/core/tensor.h"

namespace tessera::testing {

// Not a device of this machine, and never touched: checks come first.
inline TensorView on_gpu(TensorView view) {
  view.device = cuda_device(3);
  return view;
}

inline TensorView with_stride(TensorView view, int axis, int64_t stride) {
  view.strides[static_cast<size_t>(axis)] = stride;
  return view;
}

// Whether `call` throws an Error whose message has all of `words` in it.
template <class Call>
::testing::AssertionResult refused(Call&& call, std::initializer_list<std::string_view> words) {
  std::string message;
  try {
    call();
    return ::testing::AssertionFailure() << "the call was not refused";
  } catch (const Error& error) {
    message = error.what();
  }
  for (std::string_view word : words) {
    if (message.find(word) != std::string::npos) continue;
    return ::testing::AssertionFailure() << "'" << word << "' is not in: " << message;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tessera::testing
