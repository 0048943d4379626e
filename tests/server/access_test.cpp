// Keys: which are read, which are found.
// SPDX-License-Identifier: MIT
#include "server/access.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tests/core/message_of.h"

namespace tessera::server {
namespace {

TEST(ApiKeys, AreReadLineByLineWithTheirLimits) {
  const std::vector<ApiKey> keys = parse_keys("# who\n\none\n  two 3 \r\nthree\t12", "keys");
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0].key, "one");
  EXPECT_EQ(keys[0].max_requests, 0);
  EXPECT_EQ(keys[1].key, "two");
  EXPECT_EQ(keys[1].max_requests, 3);
  EXPECT_EQ(keys[2].max_requests, 12);
}

TEST(ApiKeys, AreRefusedWithoutBeingShown) {
  for (const char* text :
       {"", "# none\n", "secret many\n", "secret 0\n", "secret -1", "secret 1 2"}) {
    const std::string message = testing::message_of([&] { parse_keys(text, "keys"); });
    EXPECT_TRUE(message.starts_with("keys: ")) << message;
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  }
}

TEST(ApiKeys, AreFoundOnlyWhole) {
  const std::vector<ApiKey> keys = {{.key = "alpha"}, {.key = "beta"}};
  EXPECT_EQ(find_key(keys, "Bearer alpha"), 0u);
  EXPECT_EQ(find_key(keys, "Bearer beta"), 1u);
  for (const char* header : {"", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer alphaalpha",
                             "bearer alpha", "alpha", "Basic alpha", "Bearer  alpha"}) {
    EXPECT_FALSE(find_key(keys, header)) << header;
  }
  EXPECT_FALSE(find_key({}, "Bearer alpha"));
}

TEST(Origins, AreTheServersOwnIfTheHostIsTheSame) {
  EXPECT_TRUE(is_own_origin("http://127.0.0.1:8000", "127.0.0.1:8000"));
  EXPECT_TRUE(is_own_origin("https://name.example", "name.example"));
  EXPECT_FALSE(is_own_origin("http://127.0.0.1:8001", "127.0.0.1:8000"));
  EXPECT_FALSE(is_own_origin("null", "null"));
  EXPECT_FALSE(is_own_origin("http://evil.example", "127.0.0.1:8000"));
}

}  // namespace
}  // namespace tessera::server
