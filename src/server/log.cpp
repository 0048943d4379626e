// The time, the event, and its fields.
// SPDX-License-Identifier: MIT
#include "server/log.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace tessera::server {

std::string log_line(std::string_view event, Json more) {
  using namespace std::chrono;
  const system_clock::time_point now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  const auto millis =
      static_cast<int>(duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000);
  std::snprintf(text.data() + size, text.size() - size, ".%03dZ", millis);
  Json line = {{"time", text.data()}, {"event", std::string(event)}};
  line.update(more);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::server
