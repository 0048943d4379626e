// What an error says.
// SPDX-License-Identifier: MIT
#include "tessera/core/error.h"

#include <gtest/gtest.h>

#include <source_location>
#include <string>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

std::string place(unsigned line) { return " (error_test.cpp:" + std::to_string(line) + ")"; }

TEST(Error, SaysWhatFirstAndThenWhereWithoutTheDirectory) {
  const unsigned line = std::source_location::current().line() + 1;
  EXPECT_EQ(message_of([] { fail("gemm: k is 3"); }), "gemm: k is 3" + place(line));
}

TEST(Error, AKeptContractSaysNothing) {
  EXPECT_EQ(message_of([] { expects(true, "never read"); }), "");
  EXPECT_EQ(message_of([] { expects_equal(4, 4, "never read"); }), "");
}

TEST(Error, ABrokenContractNamesTheLineThatChecked) {
  const unsigned line = std::source_location::current().line() + 1;
  EXPECT_EQ(message_of([] { expects(false, "eps is 0"); }), "eps is 0" + place(line));
}

TEST(Error, AMismatchSaysBothNumbers) {
  const unsigned line = std::source_location::current().line() + 1;
  EXPECT_EQ(message_of([] { expects_equal(96, 64, "attention: k.head_dim"); }),
            "attention: k.head_dim is 96; expected 64" + place(line));
}

TEST(Error, IsCaughtAsARuntimeError) { EXPECT_THROW(fail("x"), std::runtime_error); }

}  // namespace
}  // namespace tessera
