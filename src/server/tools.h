// Tools that a chat may call: the fields `tools` and `tool_choice`, and the calls of an answer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/json_fields.h"
#include "tessera/grammar/constraint.h"
#include "text/tool_calls.h"

namespace tessera::server {

// How an answer may call tools.
struct ToolUse {
  enum class Mode : uint8_t {
    free,      // the model decides, and calls in the format of its chat template
    required,  // the answer is a JSON list of calls
    named,     // the answer is the arguments of one function
  };
  Mode mode = Mode::free;
  text::ToolFormat format = text::ToolFormat::hermes;  // for Mode::free
  std::string name = {};                               // for Mode::named
  std::string tools_json = {};                         // as the chat template gets them
  // What makes the answer a call, for the modes other than free.
  std::optional<ConstraintSpec> constraint = {};
};

// None if the body has no tools, or tool_choice is "none". Refuses tools for a model whose chat
// template shows no calls, which is `format` without a value.
std::optional<ToolUse> read_tools(Fields& fields, std::optional<text::ToolFormat> format);

// Splits the text of one answer into content and calls, as it arrives.
class CallReader {
 public:
  // `seed` makes the ids of calls differ from those of other answers.
  CallReader(const ToolUse& use, std::string seed);

  struct News {
    std::string content = {};
    std::string calls = {};  // elements of a JSON list, with commas between them
  };
  // The deltas that `text` adds to the stream. is_end: no text follows.
  News take(std::string_view text, bool is_end);
  int32_t num_calls() const { return static_cast<int32_t>(calls_.size()); }
  // All calls so far, whole, as elements of a JSON list.
  std::string whole() const;

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  std::string id_of(size_t call) const;

  std::string name_;  // of the function, for Mode::named
  std::string seed_;
  std::optional<text::ToolCallParser> parser_;  // not for Mode::named
  std::vector<Call> calls_;
};

}  // namespace tessera::server
