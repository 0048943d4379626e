// Message building: concat("k is ", k, "; want ", n), and foreign text made fit to be shown.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>

namespace tessera {

// Only for text that is about to be thrown or printed; nothing on a hot path calls it.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);  // out of memory is thrown; else the text would end early
  (out << ... << parts);
  return std::move(out).str();
}

inline constexpr size_t kShownBytes = 80;
inline constexpr size_t kShownPathBytes = 240;

// Text from a file, a path, a request or the environment, as every message shows it: one printable
// line of valid UTF-8. Control characters, characters that are invisible or turn the direction of
// writing, and bytes that are no UTF-8 become \n, \t, \xNN or \u{NNNN}. From text longer than
// max_bytes the middle is cut, and "...(N bytes)..." stands in its place. Printable text that is
// short enough stays as it is.
std::string shown(std::string_view text, size_t max_bytes = kShownBytes);
std::string in_quotes(std::string_view text);  // the same between single quotes
// The same with the length that paths have: shown_path(path.native()).
std::string shown_path(std::string_view path);

// Refuses a text with a NUL byte, which parsers may take for its end. `origin` begins the message.
void check_no_nul(std::string_view text, std::string_view origin);

}  // namespace tessera
