// Functions every template sees: Jinja's own, and those Hugging Face adds.
// SPDX-License-Identifier: MIT
#include <array>
#include <ctime>
#include <string>

#include "core/text.h"
#include "text/chat/access.h"
#include "text/chat/builtins.h"
#include "text/chat/operators.h"
#include "text/chat/print.h"

namespace tessera::chat {
namespace {

Value make_range(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "range", arguments, {"start", "stop", "step"}, 1);
  const bool has_start = given.has(1);
  const int64_t start = has_start ? given.integer(0, 0) : 0;
  const int64_t stop = given.integer(has_start ? 1 : 0, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) state.fail("the step of 'range' can not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    state.pay(1);  // every element is paid for before it is made
    items.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return state.make_list(std::move(items), ListKind::range);
}

void set_field(RenderState& state, Dict& dict, const Value& key, const Value& value) {
  if (!Dict::can_be_key(key)) state.fail(concat(describe(key), " can not be a key"));
  state.pay_bytes(key.text() ? key.text()->size() : 0);
  dict.set(key, value);
}

// The fields of dict(...) and namespace(...): those of a dictionary, then the named ones.
void fill(RenderState& state, std::string_view callee, Dict& dict, const Arguments& arguments) {
  if (arguments.positional.size() > 1) state.fail(concat("'", callee, "' takes one dictionary"));
  if (!arguments.positional.empty()) {
    const Dict* source = arguments.positional[0].dict();
    if (!source) {
      state.fail(
          concat("'", callee, "' needs a dictionary; got ", describe(arguments.positional[0])));
    }
    for (const auto& [key, value] : source->entries()) set_field(state, dict, key, value);
  }
  for (const auto& [name, value] : arguments.named) {
    set_field(state, dict, control_text(name), value);
  }
}

Value make_dict(RenderState& state, const Value&, const Arguments& arguments) {
  Dict* dict = state.make<Dict>();
  fill(state, "dict", *dict, arguments);
  return dict;
}

Value make_namespace(RenderState& state, const Value&, const Arguments& arguments) {
  Namespace* made = state.make<Namespace>();
  fill(state, "namespace", made->fields, arguments);
  return made;
}

Value raise_exception(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "raise_exception", arguments, {"message"}, 1);
  state.fail(concat("the template refuses: ", to_text(state, given.at(0))->bytes()));
}

// Local time by strftime, one field at a time, so that the format holds only what is known.
Value strftime_now(RenderState& state, const Value&, const Arguments& arguments) {
  const Signature given(state, "strftime_now", arguments, {"format"}, 1);
  const std::string_view format = given.text(0).bytes();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  TextBuilder out(state);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.append(format.substr(i, 1), true);
      continue;
    }
    std::string field = "%";
    if (i + 1 < format.size() && format[i + 1] == '-') field += format[++i];
    const char letter = ++i < format.size() ? format[i] : '\0';
    static constexpr std::string_view kFields = "aAbBdeHIjmMpSuwyYZ%";
    if (letter == '\0' || kFields.find(letter) == std::string_view::npos) {
      state.fail(concat("'strftime_now' knows the fields ", kFields, "; found '%",
                        letter == '\0' ? ' ' : letter, "'"));
    }
    std::array<char, 64> buffer;
    field += letter;
    const size_t size = std::strftime(buffer.data(), buffer.size(), field.c_str(), &local);
    out.append({buffer.data(), size}, true);
  }
  return out.take_value();
}

constexpr Builtin kFunctions[] = {
    {"dict", &make_dict},   {"namespace", &make_namespace},  {"raise_exception", &raise_exception},
    {"range", &make_range}, {"strftime_now", &strftime_now},
};

}  // namespace

std::span<const Builtin> functions() { return kFunctions; }

}  // namespace tessera::chat
