// Tool calls, character by character.
// SPDX-License-Identifier: MIT
#include "text/tool_calls.h"

#include <algorithm>
#include <utility>

namespace tessera::text {
namespace {

constexpr std::string_view kHermesMark = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr std::string_view kMistralMark = "[TOOL_CALLS]", kArgumentsMark = "[ARGS]";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr size_t kMostNameBytes = 256;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_blank(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return is_blank(c); });
}

}  // namespace

std::optional<ToolFormat> find_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (has(kHermesMark)) return ToolFormat::hermes;
  if (has(kMistralMark)) return ToolFormat::mistral;
  if (has(kPythonTag) || has("\"parameters\": ")) return ToolFormat::llama3;
  return std::nullopt;
}

std::string CallObject::take_arguments() { return std::exchange(arguments_, {}); }

// `text_` keeps escapes as they were written: names and keys of calls have none.
void CallObject::end_string() {
  if (is_key_) {
    key_ = std::exchange(text_, {});
    place_ = Place::colon;
    return;
  }
  if (key_ == "name") name_ = text_;
  text_.clear();
  place_ = Place::after;
}

CallObject::State CallObject::push_string(char c) {
  if (is_escaped_) {
    is_escaped_ = false;
  } else if (c == '\\') {
    is_escaped_ = true;
  } else if (c == '"') {
    end_string();
    return State::open;
  }
  text_ += c;
  return State::open;
}

CallObject::State CallObject::begin_value(char c) {
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  if (is_arguments && (c != '{' || has_arguments_)) return State::broken;
  if (key_ == "name" && (c != '"' || has_name())) return State::broken;
  if (c == '"') {
    is_key_ = false;
    place_ = Place::string;
  } else if (c == '{' || c == '[') {
    place_ = Place::nested;
    depth_ = 1;
    in_string_ = is_escaped_ = false;
    has_arguments_ = has_arguments_ || is_arguments;
    if (is_arguments) arguments_ += c;
  } else if (c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) {
    place_ = Place::literal;
  } else {
    return State::broken;
  }
  return State::open;
}

CallObject::State CallObject::push(char c) {
  switch (place_) {
    case Place::start: place_ = Place::key; return c == '{' ? State::open : State::broken;
    case Place::key:
      if (is_blank(c)) return State::open;
      is_key_ = true;
      place_ = Place::string;
      return c == '"' ? State::open : State::broken;
    case Place::string: return push_string(c);
    case Place::colon:
      if (is_blank(c)) return State::open;
      place_ = Place::value;
      return c == ':' ? State::open : State::broken;
    case Place::value: return is_blank(c) ? State::open : begin_value(c);
    case Place::nested: {
      if (key_ == "arguments" || key_ == "parameters") arguments_ += c;
      if (in_string_) {
        const bool was_escaped = std::exchange(is_escaped_, !is_escaped_ && c == '\\');
        in_string_ = was_escaped || c != '"';
        return State::open;
      }
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && --depth_ == 0) place_ = Place::after;
      return State::open;
    }
    case Place::literal:
      if (c != ',' && c != '}' && !is_blank(c)) return State::open;
      [[fallthrough]];
    case Place::after:
      place_ = c == ',' ? Place::key : Place::after;
      if (c == '}') return State::complete;
      return c == ',' || is_blank(c) ? State::open : State::broken;
  }
  return State::broken;
}

ToolCallParser::ToolCallParser(ToolFormat format) : format_(format) {
  if (format == ToolFormat::hermes) mark_ = kHermesMark;
  if (format == ToolFormat::mistral) mark_ = kMistralMark;
}

void ToolCallParser::push(std::string_view piece, ToolOutput& out) {
  for (const char c : piece) take(c, out);
}

void ToolCallParser::finish(ToolOutput& out) {
  const bool is_between = place_ == Place::after_call || (place_ == Place::text && num_calls_ > 0);
  if (!(is_between && is_blank(held_)) && !is_reported_) out.content += held_;
  held_.clear();
  place_ = Place::rest;
}

void ToolCallParser::take(char c, ToolOutput& out) {
  switch (place_) {
    case Place::text: return in_text(c, out);
    case Place::before_call: return before_call(c, out);
    case Place::call: return in_call(c, out);
    case Place::after_call: return after_call(c, out);
    case Place::name: return in_name(c, out);
    case Place::named_call: return in_named_call(c, out);
    case Place::rest: out.content += c; return;
  }
}

// What was held is no call.
void ToolCallParser::give_up(ToolOutput& out) {
  out.content += std::exchange(held_, {});
  place_ = format_ == ToolFormat::llama3 ? Place::rest : Place::text;
}

void ToolCallParser::in_text(char c, ToolOutput& out) {
  held_ += c;
  if (format_ == ToolFormat::llama3) {
    const std::string_view text =
        std::string_view(held_).substr(std::min(held_.find_first_not_of(" \n\t\r"), held_.size()));
    if (text == "{") {
      place_ = Place::before_call;
      held_.pop_back();
      return before_call(c, out);
    }
    if (text == kPythonTag) {
      place_ = Place::before_call;
    } else if (!text.empty() && !kPythonTag.starts_with(text)) {
      give_up(out);
    }
    return;
  }
  if (held_.ends_with(mark_)) {
    const std::string_view before = std::string_view(held_).substr(0, held_.size() - mark_.size());
    const bool is_dropped = num_calls_ > 0 && is_blank(before);
    if (!is_dropped) out.content += before;
    held_ = mark_;
    place_ = Place::before_call;
    return;
  }
  // Blanks after a call are kept back: they are dropped if another call follows.
  size_t num_kept = num_calls_ > 0 && is_blank(held_) ? held_.size() : 0;
  for (size_t count = std::min(held_.size(), mark_.size() - 1); count > num_kept; --count) {
    if (!std::string_view(held_).ends_with(mark_.substr(0, count))) continue;
    const bool follows_blanks =
        num_calls_ > 0 && is_blank(std::string_view(held_).substr(0, held_.size() - count));
    num_kept = follows_blanks ? held_.size() : count;
  }
  out.content.append(held_, 0, held_.size() - num_kept);
  held_.erase(0, held_.size() - num_kept);
}

void ToolCallParser::before_call(char c, ToolOutput& out) {
  held_ += c;
  if (is_blank(c)) return;
  if (c == '{') {
    object_ = {};
    object_.push(c);
    is_reported_ = false;
    place_ = Place::call;
  } else if (format_ == ToolFormat::mistral && c == '[' && !is_list_) {
    is_list_ = true;
  } else if (format_ == ToolFormat::mistral && !is_list_) {
    name_ = c;
    is_reported_ = false;
    place_ = Place::name;
  } else {
    is_list_ = false;
    give_up(out);
  }
}

// Tells of the call that is being read, and of what is new in its arguments.
void ToolCallParser::report(ToolOutput& out) {
  if (!object_.has_name()) return;
  std::string arguments = object_.take_arguments();
  if (!is_reported_) {
    is_reported_ = true;
    held_.clear();
    out.deltas.push_back({num_calls_++, object_.name(), std::move(arguments)});
  } else if (!arguments.empty()) {
    out.deltas.push_back({num_calls_ - 1, "", std::move(arguments)});
  }
}

void ToolCallParser::in_call(char c, ToolOutput& out) {
  if (!is_reported_) held_ += c;
  const CallObject::State state = object_.push(c);
  if (object_.has_arguments()) report(out);
  if (state == CallObject::State::open) return;
  if (state == CallObject::State::complete && object_.has_name() &&
      (object_.has_arguments() || format_ != ToolFormat::llama3)) {
    report(out);
    if (!object_.has_arguments()) out.deltas.push_back({num_calls_ - 1, "", "{}"});
    is_reported_ = false;
    place_ = Place::after_call;
    return;
  }
  if (is_reported_) held_ = c;  // the rest of a call that broke off
  is_reported_ = is_list_ = false;
  give_up(out);
}

void ToolCallParser::after_call(char c, ToolOutput& out) {
  held_ += c;
  if (is_blank(held_)) return;
  const size_t first = held_.find_first_not_of(" \n\t\r");
  const std::string_view text = std::string_view(held_).substr(first);
  if (format_ == ToolFormat::hermes) {
    if (text == kHermesEnd) {
      held_.clear();
      place_ = Place::text;
    } else if (!kHermesEnd.starts_with(text)) {
      give_up(out);
    }
    return;
  }
  if (format_ == ToolFormat::llama3) {
    if (c == ';' && text == ";") return;
    if (c == '{' &&
        (text == "{" || (text.starts_with(";") && is_blank(text.substr(1, text.size() - 2))))) {
      held_.pop_back();
      place_ = Place::before_call;
      return before_call(c, out);
    }
    if (text.starts_with(";") && is_blank(text.substr(1))) return;
    return give_up(out);
  }
  if (is_list_ && c == ',' && text == ",") {
    held_.clear();
    place_ = Place::before_call;
  } else if (is_list_ && text == "]") {
    held_.clear();
    is_list_ = false;
    place_ = Place::text;
  } else {
    is_list_ = false;
    give_up(out);
  }
}

// name[ARGS]{...} or name{...}
void ToolCallParser::in_name(char c, ToolOutput& out) {
  held_ += c;
  name_ += c;
  if (c == '{') {
    std::string_view name = std::string_view(name_).substr(0, name_.size() - 1);
    if (name.ends_with(kArgumentsMark)) name.remove_suffix(kArgumentsMark.size());
    while (!name.empty() && is_blank(name.back())) name.remove_suffix(1);
    if (name.empty()) return give_up(out);
    out.deltas.push_back({num_calls_++, std::string(name), "{"});
    held_.clear();
    depth_ = 1;
    in_string_ = is_escaped_ = false;
    place_ = Place::named_call;
  } else if (c == '\n' || name_.size() > kMostNameBytes) {
    give_up(out);
  }
}

void ToolCallParser::in_named_call(char c, ToolOutput& out) {
  if (out.deltas.empty() || out.deltas.back().index != num_calls_ - 1) {
    out.deltas.push_back({num_calls_ - 1, "", ""});
  }
  out.deltas.back().arguments += c;
  if (in_string_) {
    const bool was_escaped = std::exchange(is_escaped_, !is_escaped_ && c == '\\');
    in_string_ = was_escaped || c != '"';
    return;
  }
  in_string_ = c == '"';
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && --depth_ == 0) place_ = Place::text;
}

}  // namespace tessera::text
