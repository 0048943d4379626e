// A string that remembers which of its bytes the template wrote and which came from outside.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::chat {

// Bytes in runs of one origin: control where the template itself wrote them, input where they came
// from messages and variables. Comparisons look at the bytes alone.
class Text {
 public:
  struct Run {
    size_t end;  // one past the run's last byte; the run begins where the previous one ends
    bool is_control;
  };

  Text() = default;
  Text(std::string_view bytes, bool is_control) { append(bytes, is_control); }

  std::string_view bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(std::string_view bytes, bool is_control);
  // The number of the run that holds byte `position`; runs().size() at the end of the text.
  size_t run_at(size_t position) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ in is_control; none is empty
};

using TextRef = std::shared_ptr<const Text>;

}  // namespace tessera::chat
