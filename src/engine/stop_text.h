// Text on its way out: held back while it might begin a stop string, cut where one is complete.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::engine {

// The text ends before the stop string that is complete first; of several that end together, the
// longest. What comes out does not depend on how the text was cut into pieces.
class StopText {
 public:
  // Adds a piece and moves to `out` what is decided; true when a stop string is complete, after
  // which nothing more may be pushed. `stops` are the same at every call, and none is empty.
  bool push(std::string_view piece, const std::vector<std::string>& stops, std::string& out);
  // Moves what is held back to `out`: the text ends, or stop strings did not count so far.
  void flush(std::string& out);

 private:
  std::string held_;  // shorter than the longest stop string between calls
};

}  // namespace tessera::engine
