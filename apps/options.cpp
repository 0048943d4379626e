// Flags, their environment variables and their numbers.
// SPDX-License-Identifier: MIT
#include "apps/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/text.h"

namespace tessera::apps {
namespace {

// Flags that say the same thing to whichever verb has them.
constexpr std::array<std::string_view, 10> kShared = {"check-weights", "context", "device",
                                                     "dtype",         "kv",      "kv-bytes",
                                                      "step-timeout",  "threads", "verbose",
                                                      "weights"};

std::string env_word(std::string_view text) {
  std::string word;
  for (const char letter : text) {
    word +=
        letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return word;
}

// "RUN_", "BENCH_E2E_": the names of the verb and of those above it, the root left out.
std::string verb_prefix(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return {};
  return verb_prefix(*verb.get_parent()) + env_word(verb.get_name()) + "_";
}

CLI::Validator quantity_validator() {
  return {[](std::string& text) -> std::string {
            const std::optional<int64_t> value = parse_quantity(text);
            if (!value) return concat("'", text, "' is not a count such as 512, 32K or 2G");
            text = std::to_string(*value);
            return {};
          },
          ""};
}

}  // namespace

std::optional<int64_t> parse_quantity(std::string_view text) {
  double number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string unit(rest, text.data() + text.size());
  std::ranges::transform(unit, unit.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  if (unit.ends_with("IB")) {
    unit.resize(unit.size() - 2);
    if (unit.empty()) return std::nullopt;
  } else if (unit.ends_with("B")) {
    unit.resize(unit.size() - 1);
  }
  if (!unit.empty()) {
    const size_t power = std::string_view("KMGT").find(unit);
    if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
    number = std::ldexp(number, 10 * (static_cast<int>(power) + 1));
  }
  if (number != std::floor(number) || number >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(number);
}

CLI::Option* FlagSet::finish(CLI::Option* option, const char* type) {
  option->group(group_);
  if (type != nullptr) option->type_name(type);
  return option;
}

CLI::Option* FlagSet::quantity(const char* names, int64_t& target, const char* type,
                               const char* help) {
  CLI::Option* option = value(names, target, type, help);
  option->transform(quantity_validator());
  return option;
}

CLI::Option* FlagSet::choice(const char* names, std::string& target,
                             std::vector<std::string> choices, const char* help) {
  std::string type;
  for (const std::string& one : choices) type += (type.empty() ? "" : "|") + one;
  CLI::Option* option = value(names, target, type.c_str(), help);
  option->check(CLI::Validator(
      [choices = std::move(choices), type](const std::string& text) -> std::string {
        if (std::ranges::find(choices, text) != choices.end()) return {};
        return concat("'", text, "' is not one of ", type);
      },
      ""));
  return option;
}

CLI::Option* FlagSet::toggle(const char* names, bool& target, const char* help) {
  return finish(verb_.add_flag(names, target, help), nullptr);
}

CLI::Option* FlagSet::toggle(const char* names, const char* help) {
  const std::string description = help;  // CLI11 tells it from a target by its const
  return finish(verb_.add_flag(names, description), nullptr);
}

CLI::Option* FlagSet::toggle(const char* names, int& target, const char* help) {
  return finish(verb_.add_flag(names, target, help), nullptr);
}

std::string env_name(const CLI::App& verb, const CLI::Option& flag) {
  if (flag.get_lnames().empty()) return {};
  if (&flag == verb.get_help_ptr() || &flag == verb.get_help_all_ptr()) return {};
  const std::string& name = flag.get_lnames().front();
  const bool is_shared = std::ranges::find(kShared, name) != kShared.end();
  return concat("TESSERA_", is_shared ? std::string() : verb_prefix(verb), env_word(name));
}

void attach_environment(CLI::App& root) {
  for (CLI::App* verb : root.get_subcommands(nullptr)) {
    // Only the verb that is used: a bad value for one verb must not stop another.
    verb->preparse_callback([verb](size_t) {
      for (CLI::Option* flag : verb->get_options()) flag->envname(env_name(*verb, *flag));
    });
    attach_environment(*verb);
  }
}

}  // namespace tessera::apps
