// What a test asks of the status of a call.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/c.h"

namespace tessera::testing {

inline void expect_ok(TesseraStatus status) {
  EXPECT_EQ(status, TESSERA_OK) << tessera_last_error();
}

inline void expect_refused(TesseraStatus status, const std::string& words) {
  EXPECT_EQ(status, TESSERA_ERROR);
  EXPECT_NE(std::string(tessera_last_error()).find(words), std::string::npos)
      << "message: " << tessera_last_error() << "\nwant in it: " << words;
}

}  // namespace tessera::testing
