// Flags, their environment variables and their numbers.
// SPDX-License-Identifier: MIT
#include "apps/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "core/text.h"

namespace tessera::apps {
namespace {

// Flags that say the same thing to whichever verb has them.
constexpr std::array<std::string_view, 10> kShared = {
    "check-weights", "context",      "device",  "dtype",   "kv",
    "kv-bytes",      "step-timeout", "threads", "verbose", "weights"};

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

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// As parse_quantity; what is too large is kLargest + 1.
std::optional<uint64_t> read_quantity(std::string_view text) {
  constexpr uint64_t kTooLarge = uint64_t{1} << 63;
  size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos) end = text.size();
  std::string digits(text.substr(0, end));
  std::string unit(text.substr(end));
  // Digits behind the point are taken as digits, and divided away at the end: exactly, or not.
  const size_t point = digits.find('.');
  size_t num_decimals = 0;
  if (point != std::string::npos) {
    num_decimals = digits.size() - point - 1;
    digits.erase(point, 1);
  }
  if (digits.empty() || digits.find('.') != std::string::npos) return std::nullopt;
  std::ranges::transform(unit, unit.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  if (unit.ends_with("IB")) {
    unit.resize(unit.size() - 2);
    if (unit.empty()) return std::nullopt;
  } else if (unit.ends_with("B")) {
    unit.resize(unit.size() - 1);
  }
  int shift = 0;
  if (!unit.empty()) {
    const size_t power = std::string_view("KMGT").find(unit);
    if (unit.size() != 1 || power == std::string_view::npos) return std::nullopt;
    shift = 10 * (static_cast<int>(power) + 1);
  }
  unsigned __int128 value = 0;
  for (const char digit : digits) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value >> 80 != 0) return kTooLarge;  // with a shift of 40 and three digits to spare
  }
  value <<= shift;
  for (size_t i = 0; i < num_decimals; ++i) {
    if (value % 10 != 0) return std::nullopt;
    value /= 10;
  }
  return value >= kTooLarge ? kTooLarge : static_cast<uint64_t>(value);
}

CLI::Validator quantity_validator() {
  return {[](std::string& text) -> std::string {
            const std::optional<uint64_t> value = read_quantity(text);
            if (!value) return concat("'", text, "' is not a count such as 512, 32K or 2G");
            if (*value > static_cast<uint64_t>(kLargest)) {
              return concat("'", text, "' is too large; the most is ", kLargest, ", 2^63 - 1");
            }
            text = std::to_string(*value);
            return {};
          },
          ""};
}

}  // namespace

std::optional<int64_t> parse_quantity(std::string_view text) {
  const std::optional<uint64_t> value = read_quantity(text);
  if (!value || *value > static_cast<uint64_t>(kLargest)) return std::nullopt;
  return static_cast<int64_t>(*value);
}

template <class T>
std::string number_problem(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const char* const kind = std::is_integral_v<T> ? "a whole number" : "a number";
  if (error == std::errc::result_out_of_range && rest == end) {
    return concat("'", text, "' is too large or too small; give ", kind, " from ",
                  std::numeric_limits<T>::lowest(), " to ", std::numeric_limits<T>::max());
  }
  if (error == std::errc{} && rest == end && !text.empty()) return {};
  return concat("'", text, "' is not ", kind);
}

template std::string number_problem<int>(std::string_view);
template std::string number_problem<int64_t>(std::string_view);
template std::string number_problem<float>(std::string_view);
template std::string number_problem<double>(std::string_view);

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
