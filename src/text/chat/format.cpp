// The fields of a format string: '{}', '{0.name[key]!r:>10}', '{{' and '}}'.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <optional>

#include "core/text.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/chat/text_ops.h"

namespace tessera::chat {
namespace {

constexpr size_t kShownFieldBytes = 60;  // of a field in a message
constexpr int kMaxNesting = 2;           // fields within a field's specification; Python's limit

std::optional<size_t> read_index(std::string_view text) {
  size_t index = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), index);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return {};
  return index;
}

// One call of format(). Automatic numbering counts nested fields too.
class Formatter {
 public:
  Formatter(RenderState& state, const Arguments& arguments)
      : state_(state), arguments_(arguments) {}

  Value run(const Text& pattern, int nesting = 0) {
    if (nesting == kMaxNesting) fail("its fields are nested too deeply");
    const std::string_view bytes = pattern.bytes();
    TextBuilder out(state_);
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", pos), bytes.size());
      out.append(pattern, pos, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out.append(pattern, brace, brace + 1);  // "{{" is a brace
        pos = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') fail("a '}' has no '{' before it");
      const size_t end = field_end(bytes, brace + 1);
      add_field(out, pattern, brace + 1, end, nesting);
      pos = end + 1;
    }
    return out.take_value();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { state_.fail(concat("'format': ", what)); }

  // The position of the '}' of the field that begins at `begin`.
  size_t field_end(std::string_view bytes, size_t begin) const {
    size_t depth = 1;
    for (size_t i = begin; i < bytes.size(); ++i) {
      if (bytes[i] == '{') ++depth;
      if (bytes[i] == '}' && --depth == 0) return i;
    }
    fail("a '{' is not closed");
  }

  // [name]["!" conversion][":" specification] within pattern[begin, end).
  void add_field(TextBuilder& out, const Text& pattern, size_t begin, size_t end, int nesting) {
    const std::string_view field = pattern.bytes().substr(begin, end - begin);
    size_t name_size = 0;
    for (bool is_in_brackets = false; name_size < field.size(); ++name_size) {
      const char c = field[name_size];
      if (c == '[') is_in_brackets = true;
      if (c == ']') is_in_brackets = false;
      if (!is_in_brackets && (c == '!' || c == ':')) break;
    }
    Value value = find_value(field.substr(0, name_size));
    size_t at = name_size;
    if (at < field.size() && field[at] == '!') {
      value = convert(value, field.substr(at + 1, 1));
      at += 2;
      if (at < field.size() && field[at] != ':') fail("':' is expected after a conversion");
    }
    if (at >= field.size()) return format_value(out, state_, value, {});
    const Value spec = run(*sub_text(state_, pattern, begin + at + 1, end).text(), nesting + 1);
    format_value(out, state_, value, spec.text()->bytes());
  }

  // "0", "name" or nothing, then ".attribute" and "[item]".
  Value find_value(std::string_view path) {
    const size_t size = std::min(path.find_first_of(".["), path.size());
    Value value = find_argument(path.substr(0, size));
    for (path.remove_prefix(size); !path.empty();) {
      const bool is_item = path[0] == '[';
      const size_t end = std::min(is_item ? path.find(']') : path.find_first_of(".[", 1),
                                  is_item ? std::string_view::npos : path.size());
      if (end == std::string_view::npos) fail("a '[' is not closed");
      const std::string_view name = path.substr(1, end - 1);
      if (name.empty()) fail("a field has an empty name");
      const auto index = is_item ? read_index(name) : std::nullopt;
      value = !is_item ? get_attribute(state_, value, name)
                       : get_item(state_, value,
                                  index ? Value(static_cast<int64_t>(*index)) : control_text(name));
      path.remove_prefix(is_item ? end + 1 : end);
      if (!path.empty() && path[0] != '.' && path[0] != '[') {
        fail("only '.' or '[' may follow ']' in a field");
      }
    }
    return value;
  }

  Value find_argument(std::string_view name) {
    state_.pay_bytes(name.size());
    const auto number = name.empty() ? std::optional(next_index_) : read_index(name);
    if (!number) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      fail(concat("there is no argument '", name.substr(0, kShownFieldBytes), "'"));
    }
    bool& is_used = name.empty() ? counts_fields_ : names_fields_;
    is_used = true;
    if (counts_fields_ && names_fields_) fail("'{}' and '{0}' can not stand in one string");
    if (name.empty()) ++next_index_;
    if (*number >= arguments_.positional.size()) {
      fail(concat("field ", *number, " has no argument; got ", arguments_.positional.size()));
    }
    return arguments_.positional[*number];
  }

  Value convert(const Value& value, std::string_view to) {
    if (to == "s") return to_text(state_, value);
    if (to != "r") fail(concat("conversion '!", to, "' is not supported; use !s or !r"));
    TextBuilder out(state_);
    print_repr(out, state_, value);
    return out.take_value();
  }

  RenderState& state_;
  const Arguments& arguments_;
  size_t next_index_ = 0;
  bool counts_fields_ = false;
  bool names_fields_ = false;
};

}  // namespace

Value format_text(RenderState& state, const Text& pattern, const Arguments& arguments) {
  return Formatter(state, arguments).run(pattern);
}

}  // namespace tessera::chat
