// Tool calls in generated text, as it arrives: the formats of Llama 3, Hermes and Qwen, and
// Mistral.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

enum class ToolFormat : uint8_t {
  llama3,   // the text is {"name": ..., "parameters": {...}}, or several of them with ';' between
  hermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, anywhere in the text
  mistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...] or [TOOL_CALLS]name[ARGS]{...}
};
// By the model's chat template, which shows its calls in its own format; none if it has none.
std::optional<ToolFormat> find_tool_format(std::string_view chat_template);

// A piece of a call.
struct ToolDelta {
  int32_t index = 0;      // of the call, from 0
  std::string name;       // in the first piece of a call only
  std::string arguments;  // text of a JSON object, to be joined
};

struct ToolOutput {
  std::string content;
  std::vector<ToolDelta> deltas;
};

// One JSON object of a call, one character at a time.
class CallObject {
 public:
  enum class State : uint8_t { open, complete, broken };

  State push(char c);
  bool has_name() const { return !name_.empty(); }
  bool has_arguments() const { return has_arguments_; }
  const std::string& name() const { return name_; }
  // What has arrived of the arguments since the last call.
  std::string take_arguments();

 private:
  enum class Place : uint8_t { start, key, colon, value, string, literal, nested, after };

  State push_string(char c);
  void end_string();
  State begin_value(char c);

  Place place_ = Place::start;
  bool is_key_ = false, is_escaped_ = false, has_arguments_ = false;
  int depth_ = 0;           // of the value that is nested
  bool in_string_ = false;  // of that value
  std::string text_;        // of the string being read, as written
  std::string key_, name_, arguments_;
};

// Splits streamed text into content and tool calls. What comes out, joined, does not depend on how
// the text was cut into pieces. Text that turns out not to be a call becomes content; only the
// marks around calls and blanks between them are dropped.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolFormat format);

  void push(std::string_view piece, ToolOutput& out);
  void finish(ToolOutput& out);  // the text has ended
  int32_t num_calls() const { return num_calls_; }

 private:
  enum class Place : uint8_t { text, before_call, call, after_call, name, named_call, rest };

  void take(char c, ToolOutput& out);
  void in_text(char c, ToolOutput& out);
  void before_call(char c, ToolOutput& out);
  void in_call(char c, ToolOutput& out);
  void after_call(char c, ToolOutput& out);
  void in_name(char c, ToolOutput& out);
  void in_named_call(char c, ToolOutput& out);
  void give_up(ToolOutput& out);
  void report(ToolOutput& out);

  ToolFormat format_;
  std::string_view mark_;  // that announces calls; empty for llama3
  Place place_ = Place::text;
  std::string held_;          // text that may become part of a call
  CallObject object_;         // the call being read
  std::string name_;          // of a call whose name stands before its object
  bool is_reported_ = false;  // the call being read
  bool is_list_ = false;
  int depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
  int32_t num_calls_ = 0;
};

}  // namespace tessera::text
