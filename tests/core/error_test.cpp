// What an error says, and where it was raised.
// SPDX-License-Identifier: MIT
#include "tessera/core/error.h"

#include <gtest/gtest.h>

#include <source_location>
#include <string>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

template <class Action>
std::string where_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.where();
  }
  return {};
}

std::string place(unsigned line) { return "error_test.cpp:" + std::to_string(line); }

TEST(Error, SaysWhatWithoutWhere) {
  EXPECT_EQ(message_of([] { fail("gemm: k is 3"); }), "gemm: k is 3");
}

TEST(Error, KnowsTheLineThatRaisedIt) {
  const unsigned line = std::source_location::current().line() + 1;
  EXPECT_EQ(where_of([] { fail("x"); }), place(line));
  EXPECT_EQ(where_of([] { expects(false, "eps is 0"); }), place(line + 1));
  EXPECT_EQ(where_of([] { expects_equal(96, 64, "k.head_dim"); }), place(line + 2));
  EXPECT_EQ(where_of([] { throw Error("x"); }), place(line + 3));
}

TEST(Error, AKeptContractSaysNothing) {
  EXPECT_EQ(message_of([] { expects(true, "never read"); }), "");
  EXPECT_EQ(message_of([] { expects_equal(4, 4, "never read"); }), "");
}

TEST(Error, ABrokenContractSaysWhich) {
  EXPECT_EQ(message_of([] { expects(false, "eps is 0"); }), "eps is 0");
}

TEST(Error, AMismatchSaysBothNumbers) {
  EXPECT_EQ(message_of([] { expects_equal(96, 64, "attention: k.head_dim"); }),
            "attention: k.head_dim is 96; expected 64");
}

TEST(Error, IsCaughtAsARuntimeError) { EXPECT_THROW(fail("x"), std::runtime_error); }

}  // namespace
}  // namespace tessera
