// Comma-separated values, as RFC 4180 has them.
// SPDX-License-Identifier: MIT
#include <utility>

#include "apps/eval/tasks.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {

std::vector<std::vector<std::string>> parse_csv(std::string_view text, std::string_view origin) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool is_quoted = false;
  bool has_field = false;  // something of this row was seen
  int64_t line = 1;
  int64_t quote_line = 0;
  const auto end_field = [&] {
    row.push_back(std::exchange(field, {}));
    has_field = true;
  };
  const auto end_row = [&] {
    if (has_field || !field.empty()) {
      end_field();
      rows.push_back(std::exchange(row, {}));
    }
    has_field = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '\n') ++line;
    if (is_quoted) {
      if (letter != '"') {
        field += letter;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        is_quoted = false;
      }
    } else if (letter == '"' && field.empty()) {
      is_quoted = true;
      has_field = true;
      quote_line = line;
    } else if (letter == ',') {
      end_field();
    } else if (letter == '\n') {
      end_row();
    } else if (letter != '\r' || i + 1 == text.size() || text[i + 1] != '\n') {
      field += letter;
    }
  }
  if (is_quoted)
    throw Error(concat(origin, ":", quote_line, ": a quote is opened and never closed"));
  end_row();
  return rows;
}

}  // namespace tessera::apps
