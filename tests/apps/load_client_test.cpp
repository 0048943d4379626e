// The load generator's reader of streams, and its addresses.
// SPDX-License-Identifier: MIT
#include "apps/load_client.h"

#include <gtest/gtest.h>

#include "tests/core/message_of.h"

namespace tessera::apps {
namespace {

TEST(LoadTargets, AreParsedFromAddresses) {
  const LoadTarget plain = parse_target("http://127.0.0.1:8000");
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, "8000");
  EXPECT_EQ(plain.prefix, "");
  const LoadTarget long_one = parse_target("http://name.example/api/v1/");
  EXPECT_EQ(long_one.host, "name.example");
  EXPECT_EQ(long_one.port, "80");
  EXPECT_EQ(long_one.prefix, "/api");
  EXPECT_EQ(parse_target("http://[::1]:80/v1").host, "::1");
}

TEST(LoadTargets, RefuseWhatIsNoAddress) {
  for (const char* url : {"", "127.0.0.1:8000", "https://name.example", "http://", "http://a:b"}) {
    EXPECT_TRUE(testing::message_of([&] { parse_target(url); }).starts_with("--url is ")) << url;
  }
}

TEST(EventReader, FindsTheSameEventsHoweverTheBytesAreCut) {
  const std::string text =
      "b\r\ndata: {\"a\":\r\n6\r\n1}\n\nda\r\ne\r\nta: [DONE]\n\nxx\r\n0\r\n\r\n";
  const std::vector<std::string> expected = {"{\"a\":1}", "[DONE]"};
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EventReader reader(/*is_chunked=*/true);
    std::vector<std::string> events = reader.take(std::string_view(text).substr(0, cut));
    for (std::string& event : reader.take(std::string_view(text).substr(cut))) {
      events.push_back(std::move(event));
    }
    EXPECT_EQ(events, expected) << cut;
    EXPECT_TRUE(reader.is_done());
  }
}

TEST(EventReader, ReadsStreamsWithoutChunks) {
  EventReader reader(/*is_chunked=*/false);
  EXPECT_TRUE(reader.take("data: on").empty());
  EXPECT_EQ(reader.take("e\r\n\r\n: comment\ndata: two\n"),
            (std::vector<std::string>{"one", "two"}));
}

}  // namespace
}  // namespace tessera::apps
