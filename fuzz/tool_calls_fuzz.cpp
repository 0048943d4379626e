// Fuzzes the parser of tool calls: the split of the text does not matter, and no text is lost. The
// first byte says which format the rest is.
// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "text/tool_calls.h"

namespace {

using namespace tessera;

std::vector<std::string> parse(text::ToolFormat format, std::string_view input, size_t step) {
  text::ToolCallParser parser(format);
  std::vector<std::string> joined(1);  // content, then name and arguments of each call
  const auto add = [&](const text::ToolOutput& out) {
    joined[0] += out.content;
    for (const text::ToolDelta& delta : out.deltas) {
      if (!delta.name.empty()) joined.insert(joined.end(), {delta.name, ""});
      const auto place = static_cast<size_t>(2 * delta.index + 2);
      fuzz::require(place < joined.size(), "a call begins with its name");
      joined[place] += delta.arguments;
    }
  };
  for (size_t i = 0; i < input.size(); i += step) {
    text::ToolOutput out;
    parser.push(input.substr(i, step), out);
    add(out);
  }
  text::ToolOutput out;
  parser.finish(out);
  add(out);
  return joined;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto format = static_cast<text::ToolFormat>(data[0] % 3);
  const std::string_view input = fuzz::as_text(data + 1, size - 1);
  const std::vector<std::string> whole = parse(format, input, size);
  fuzz::require(parse(format, input, 1) == whole, "single bytes give the same");
  fuzz::require(parse(format, input, 3) == whole, "three bytes at a time give the same");
  fuzz::require(whole.size() > 1 || whole[0] == input, "no text is lost");
  return 0;
}
