// What a call is refused with, compared by the words that matter.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/context.h"
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

inline Tensor ints(std::initializer_list<int64_t> shape, const std::vector<int32_t>& values) {
  Tensor tensor(DType::i32, shape);
  std::copy(values.begin(), values.end(), tensor.view().as<int32_t>());
  return tensor;
}

using Words = std::vector<std::string_view>;

// Whether `call` throws an Error whose message has all of `words` in it.
template <class Call>
::testing::AssertionResult refused(Call&& call, const Words& words) {
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

// Whether the good call is taken and the changed one refused, by the call and by supports().
template <class Args>
::testing::AssertionResult refused_with(const Args& good, void (*call)(const Args&, const Context&),
                                        const std::function<void(Args&)>& change,
                                        const Words& words) {
  if (!supports(good)) return ::testing::AssertionFailure() << "the unchanged call is refused";
  Args args = good;
  change(args);
  if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
  return refused([&] { call(args, {}); }, words);
}

}  // namespace tessera::testing
