// Where exceptions end: every function of the C ABI runs its body through `guarded`.
// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>

#include "tessera/c.h"

namespace tessera::c_api {

// Thrown for a check_only call whose answer is no.
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Stores the message of the exception in flight for this thread, and says which status it is.
TesseraStatus record_current_exception() noexcept;

template <class Body>
TesseraStatus guarded(Body&& body) noexcept {
  try {
    body();
    return TESSERA_OK;
  } catch (...) {
    return record_current_exception();
  }
}

}  // namespace tessera::c_api
