// Reading JSON within limits. The parser is iterative; the depth is checked as it goes.
// SPDX-License-Identifier: MIT
#include "model/bounded_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

// Follows a parse: its depth, and the keys of every object that is still open.
class Watch {
 public:
  explicit Watch(std::string_view origin) : origin_(origin) {}

  void see(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (depth >= kMaxJsonDepth) {
        fail(concat(origin_, ": nests deeper than ", kMaxJsonDepth, " levels; no checkpoint does"));
      }
    }
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second) {
        fail(concat(origin_, ": the key '", shown(key), "' appears twice in one object"));
      }
    }
  }

 private:
  std::string_view origin_;
  std::vector<std::set<std::string>> open_;
};

// The text before the byte where parsing stopped, so that a NaN is shown with its key.
std::string excerpt(std::string_view text, size_t byte) {
  constexpr size_t kBefore = 40;
  const size_t end = std::min(byte, text.size());
  const size_t begin = end > kBefore ? end - kBefore : 0;
  return shown(text.substr(begin, end - begin + 8));
}

}  // namespace

json parse_json(std::string_view text, std::string_view origin) {
  check_no_nul(text, origin);
  Watch watch(origin);
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    watch.see(depth, event, parsed);
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::parse_error& error) {
    fail(concat(origin, ": is not JSON at byte ", error.byte, ", near '", excerpt(text, error.byte),
                "'"));
  } catch (const json::exception&) {  // a number beyond the range of double
    fail(concat(origin, ": holds a number that is too large"));
  }
}

std::string shown_value(const json& value) {
  if (value.is_object() && value.size() > 16) return "an object";
  if (value.is_array() && value.size() > 64) return "a long list";
  return shown(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

}  // namespace tessera::model
