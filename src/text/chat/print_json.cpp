// json.dumps() of values.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"
#include "text/unicode.h"

namespace tessera::chat {
namespace {

void append_unit(std::string& out, char32_t unit) {
  static constexpr char kHexDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHexDigits[(unit >> shift) & 15];
}

void append_escaped(std::string& out, std::string_view original, char32_t c, bool is_ascii) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    case '\f': out += "\\f"; return;
    case '\b': out += "\\b"; return;
    default: break;
  }
  if (c < 0x20) return append_unit(out, c);
  if (!is_ascii || c < 0x80 || c == unicode::kNoCode) {
    out.append(original);
  } else if (c < 0x10000) {
    append_unit(out, c);
  } else {
    append_unit(out, 0xd800 + ((c - 0x10000) >> 10));
    append_unit(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
  }
}

class JsonPrinter {
 public:
  JsonPrinter(RenderState& state, const JsonStyle& style)
      : state_(state), style_(style), out_(state) {}

  void print_value(const Value& value) {
    const auto level = state_.enter_value();
    if (const Text* text = value.text()) return print_string(*text);
    if (const List* list = value.list(); list && list->kind <= ListKind::tuple) {
      return print_list(*list);
    }
    if (const Dict* dict = value.dict()) return print_dict(*dict);
    if (!value.is_none() && !real_of(value)) {
      if (value.is_undefined()) fail_undefined(state_, value);
      state_.fail(concat("tojson can not write ", describe(value)));
    }
    add(scalar(value));
  }

  Value take() { return out_.take_value(); }

 private:
  void add(std::string_view bytes) { out_.append(bytes, false); }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
    if (const int64_t* number = value.as<int64_t>()) return std::to_string(*number);
    const double number = *value.as<double>();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return format_real(number);
  }

  void print_string(const Text& text) {
    const std::string_view bytes = text.bytes();
    add("\"");
    size_t position = 0;
    for (const Text::Run& run : text.runs()) {
      state_.pay_bytes(run.end - position);
      std::string escaped;
      while (position < run.end) {
        const unicode::Character c = unicode::character_at(bytes.substr(0, run.end), position);
        append_escaped(escaped, bytes.substr(position, c.bytes), c.code, style_.is_ascii);
        position += c.bytes;
      }
      out_.append(escaped, run.is_control);
    }
    add("\"");
  }

  void start_line() {
    if (!style_.indent) return;
    add("\n");
    for (int64_t i = 0; i < level_; ++i) add(*style_.indent);
  }

  // Python's indented form ends lines with a bare comma.
  void begin_item(bool is_first) {
    if (!is_first) add(style_.item_separator);
    start_line();
  }

  void print_list(const List& list) {
    if (list.items.empty()) return add("[]");
    add("[");
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      begin_item(i == 0);
      print_value(list.items[i]);
    }
    --level_;
    start_line();
    add("]");
  }

  std::vector<Dict::Entry> entries_of(const Dict& dict) {
    state_.pay_elements(dict.size());
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sorts_keys) {
      const auto precedes = [this](const Dict::Entry& a, const Dict::Entry& b) {
        return is_less(state_, a.first, b.first);
      };
      std::ranges::stable_sort(entries, precedes);
    }
    return entries;
  }

  void print_dict(const Dict& dict) {
    if (dict.size() == 0) return add("{}");
    add("{");
    ++level_;
    bool is_first = true;
    for (const auto& [key, value] : entries_of(dict)) {
      begin_item(is_first);
      is_first = false;
      if (key.text()) {
        print_string(*key.text());
      } else {
        add("\"");
        add(scalar(key));
        add("\"");
      }
      add(style_.key_separator);
      print_value(value);
    }
    --level_;
    start_line();
    add("}");
  }

  RenderState& state_;
  const JsonStyle& style_;
  TextBuilder out_;
  int64_t level_ = 0;
};

}  // namespace

Value to_json(RenderState& state, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(state, style);
  printer.print_value(value);
  return printer.take();
}

}  // namespace tessera::chat
