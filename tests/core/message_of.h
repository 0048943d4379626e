// The message an action is refused with.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tessera/core/error.h"

namespace tessera::testing {

// Empty when nothing is thrown.
template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace tessera::testing
