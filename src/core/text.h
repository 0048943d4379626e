// Message building: concat("k is ", k, "; want ", n).
// SPDX-License-Identifier: MIT
#pragma once

#include <sstream>
#include <string>

namespace tessera {

// Only for text that is about to be thrown or printed; nothing on a hot path calls it.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.exceptions(std::ios_base::badbit);  // out of memory is thrown; else the text would end early
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace tessera
