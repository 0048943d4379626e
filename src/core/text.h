// Builds messages: concat("k is ", k, "; want ", n). Makes untrusted text safe to print.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>

namespace tessera {

// Only for text that is about to be thrown or printed: too slow for a hot path.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);  // throws if out of memory, and does not cut the text
  (out << ... << parts);
  return std::move(out).str();
}

inline constexpr size_t kShownBytes = 80;
inline constexpr size_t kShownPathBytes = 240;

// Text from a file, a path, a request or the environment, as messages show it: one printable line
// of valid UTF-8. Control characters, invisible characters, characters that change the direction of
// writing, and invalid UTF-8 become \n, \t, \xNN or \u{NNNN}. If the text is longer than max_bytes,
// "...(N bytes)..." replaces its middle. Short printable text is unchanged.
std::string shown(std::string_view text, size_t max_bytes = kShownBytes);
std::string in_quotes(std::string_view text);  // the same between single quotes
// shown() with a length limit suited to paths: shown_path(path.native()).
std::string shown_path(std::string_view path);

// Refuses text with a NUL byte, which a parser may take for the end. `origin` begins the message.
void check_no_nul(std::string_view text, std::string_view origin);

}  // namespace tessera
