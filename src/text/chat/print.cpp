// str(), repr() and json.dumps().
// SPDX-License-Identifier: MIT
#include "text/chat/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/text.h"
#include "text/chat/operators.h"
#include "text/unicode.h"

namespace tessera::chat {

std::string format_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto written =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t mark = text.find('e');
  std::string digits;
  for (char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  int exponent = 0;
  const size_t sign = text[mark + 1] == '+' ? 1 : 0;  // from_chars takes no '+'
  std::from_chars(text.data() + mark + 1 + sign, text.data() + text.size(), exponent);

  const std::string sign_text(std::signbit(value) ? 1 : 0, '-');
  if (exponent < -4 || exponent >= 16) {
    const std::string_view rest = std::string_view(digits).substr(1);
    const int size = std::abs(exponent);
    return concat(sign_text, digits[0], rest.empty() ? "" : ".", rest, exponent < 0 ? "e-" : "e+",
                  size < 10 ? "0" : "", size);
  }
  if (exponent < 0) {
    return concat(sign_text, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
  const std::string_view shown = digits;
  return concat(sign_text, shown.substr(0, whole), ".", shown.substr(whole));
}

namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

std::string hex_escape(char kind, char32_t code, int num_digits) {
  std::string out = {'\\', kind};
  for (int i = num_digits - 1; i >= 0; --i) out += kHexDigits[(code >> (4 * i)) & 15];
  return out;
}

std::string repr_character(std::string_view original, char32_t c, char quote) {
  if (c == static_cast<char32_t>(quote) || c == '\\') return {'\\', static_cast<char>(c)};
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (c == unicode::kNoCode || unicode::is_printable(c)) return std::string(original);
  if (c < 0x100) return hex_escape('x', c, 2);
  return c < 0x10000 ? hex_escape('u', c, 4) : hex_escape('U', c, 8);
}

// repr() into a builder. Quotes, brackets and escapes that it adds count as input.
class ReprPrinter {
 public:
  ReprPrinter(TextBuilder& out, RenderState& state) : out_(out), state_(state) {}

  void print_value(const Value& value) {
    const auto level = state_.enter_value();
    if (value.text()) return print_string(*value.text());
    if (value.list()) return print_list(*value.list());
    if (value.dict()) return print_dict(*value.dict());
    if (const auto* space = value.as<Namespace*>()) {
      add("<Namespace ");
      print_dict((*space)->fields);
      return add(">");
    }
    if (value.is_undefined()) return add("Undefined");
    print(out_, state_, value);
  }

 private:
  void add(std::string_view bytes) { out_.append(bytes, false); }

  void print_string(const Text& text) {
    const std::string_view bytes = text.bytes();
    state_.pay_bytes(bytes.size());
    const bool has_single = bytes.find('\'') != std::string_view::npos;
    const bool has_double = bytes.find('"') != std::string_view::npos;
    const char quote = has_single && !has_double ? '"' : '\'';
    add({&quote, 1});
    size_t position = 0;
    for (const Text::Run& run : text.runs()) {
      std::string shown;
      while (position < run.end) {
        const unicode::Character c = unicode::character_at(bytes.substr(0, run.end), position);
        shown += repr_character(bytes.substr(position, c.bytes), c.code, quote);
        position += c.bytes;
      }
      out_.append(shown, run.is_control);
    }
    add({&quote, 1});
  }

  void print_list(const List& list) {
    if (list.kind > ListKind::tuple) {
      state_.fail(concat(describe(Value(const_cast<List*>(&list))),
                         " has no printed form; make it a list with '|list'"));
    }
    const bool is_tuple = list.kind == ListKind::tuple;
    add(is_tuple ? "(" : "[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(", ");
      print_value(list.items[i]);
    }
    if (is_tuple && list.items.size() == 1) add(",");
    add(is_tuple ? ")" : "]");
  }

  void print_dict(const Dict& dict) {
    add("{");
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!is_first) add(", ");
      is_first = false;
      print_value(key);
      add(": ");
      print_value(value);
    }
    add("}");
  }

  TextBuilder& out_;
  RenderState& state_;
};

}  // namespace

void print(TextBuilder& out, RenderState& state, const Value& value) {
  if (value.is_undefined()) return;
  if (const Text* text = value.text()) return out.append(*text);
  if (value.is_none()) return out.append("None", true);
  if (const bool* flag = value.as<bool>()) return out.append(*flag ? "True" : "False", true);
  if (const int64_t* number = value.as<int64_t>()) return out.append(std::to_string(*number), true);
  if (const double* number = value.as<double>()) return out.append(format_real(*number), true);
  if (value.list() || value.dict() || value.is<Namespace*>()) {
    return ReprPrinter(out, state).print_value(value);
  }
  state.fail(concat(describe(value), " has no printed form"));
}

void print_repr(TextBuilder& out, RenderState& state, const Value& value) {
  ReprPrinter(out, state).print_value(value);
}

TextRef to_text(RenderState& state, const Value& value) {
  if (value.text()) return value.text_ref();
  TextBuilder out(state);
  print(out, state, value);
  return out.take_value().text_ref();
}

namespace {

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
  if (c < 0x20) {
    out += hex_escape('u', c, 4);
    return;
  }
  if (!is_ascii || c < 0x80 || c == unicode::kNoCode) {
    out.append(original);
  } else if (c < 0x10000) {
    out += hex_escape('u', c, 4);
  } else {
    out += hex_escape('u', 0xd800 + ((c - 0x10000) >> 10), 4);
    out += hex_escape('u', 0xdc00 + ((c - 0x10000) & 0x3ff), 4);
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

  // In Python's indented form lines end with a comma and no space.
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
