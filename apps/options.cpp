// Flags by CLI11: how they are added, their environment variables, their help pages.
// SPDX-License-Identifier: MIT
#include "apps/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "apps/command_line.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

// Flags that mean the same to every verb.
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

// "RUN_", "BENCH_E2E_": the verb and those above it, without the root.
std::string verb_prefix(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return {};
  return verb_prefix(*verb.get_parent()) + env_word(verb.get_name()) + "_";
}

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// As parse_quantity, but kLargest + 1 for numbers that are too large.
std::optional<uint64_t> read_quantity(std::string_view text) {
  constexpr uint64_t kTooLarge = uint64_t{1} << 63;
  size_t end = text.find_first_not_of("0123456789.");
  if (end == std::string_view::npos) end = text.size();
  std::string digits(text.substr(0, end));
  std::string unit(text.substr(end));
  // Decimals are read as digits and divided away at the end, which must be exact.
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
    if (value >> 80 != 0) return kTooLarge;  // leaves room for a shift of 40
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

Verb::Verb(CLI::App& above, const char* name, const char* help)
    : app_(*above.add_subcommand(name, help)) {}
void Verb::take_anything() { app_.allow_extras(); }
void Verb::on_run(std::function<void()> run) { app_.callback(std::move(run)); }

void Verb::positional(const char* name, std::string& target, const char* help) {
  app_.add_option(name, target, help);
}

void Verb::positional(const char* name, const char* help) {
  const std::string description = help;  // its const tells CLI11 that it is not a target
  app_.add_option(name, description);
}

std::optional<std::string> Verb::given(const char* name) const {
  const CLI::Option* option = app_.get_option(name);
  if (option->count() == 0) return std::nullopt;
  return option->results().front();
}

bool Verb::has_verb_below() const { return !app_.get_subcommands().empty(); }

std::optional<bool> toggle_of(const CLI::App& app, const char* name) {
  const CLI::Option* flag = app.get_option_no_throw(name);
  if (flag == nullptr || flag->count() == 0) return std::nullopt;
  const std::string given = flag->results().back();
  return given != "0" && given != "false";
}

bool Verb::is_verbose() const { return toggle_of(app_, kVerbose).value_or(false); }

CLI::Option* FlagSet::finish(CLI::Option* option, const char* type) {
  option->group(group_);
  if (type != nullptr) option->type_name(type);
  return option;
}

template <class T>
CLI::Option* FlagSet::add(const char* names, T& target, const char* type, const char* help) {
  CLI::Option* option = app_.add_option(names, target, help)->capture_default_str();
  if constexpr (std::is_arithmetic_v<T>) {
    option->check(CLI::Validator([](std::string& text) { return number_problem<T>(text); }, ""));
  }
  return finish(option, type);
}

template <class T>
void FlagSet::value(const char* names, T& target, const char* type, const char* help) {
  add(names, target, type, help);
}

template void FlagSet::value(const char*, int&, const char*, const char*);
template void FlagSet::value(const char*, int64_t&, const char*, const char*);
template void FlagSet::value(const char*, float&, const char*, const char*);
template void FlagSet::value(const char*, double&, const char*, const char*);
template void FlagSet::value(const char*, std::string&, const char*, const char*);
template void FlagSet::value(const char*, std::optional<double>&, const char*, const char*);

template <class T>
void FlagSet::ranged(const char* names, T& target, int lowest, int highest, const char* type,
                     const char* help) {
  add(names, target, type, help)->check(CLI::Range(lowest, highest).description(""));
}

template void FlagSet::ranged(const char*, int&, int, int, const char*, const char*);
template void FlagSet::ranged(const char*, int64_t&, int, int, const char*, const char*);

void FlagSet::list(const char* names, std::vector<std::string>& target, const char* type,
                   const char* help) {
  add(names, target, type, help)->expected(1)->take_all();
}

void FlagSet::quantity(const char* names, int64_t& target, const char* type, const char* help) {
  add(names, target, type, help)->transform(quantity_validator());
}

void FlagSet::choice(const char* names, std::string& target, std::vector<std::string> choices,
                     const char* help) {
  std::string type;
  for (const std::string& one : choices) type += (type.empty() ? "" : "|") + one;
  const auto check = [choices = std::move(choices), type](const std::string& text) -> std::string {
    if (std::ranges::find(choices, text) != choices.end()) return {};
    return concat("'", text, "' is not one of ", type);
  };
  add(names, target, type.c_str(), help)->check(CLI::Validator(check, ""));
}

void FlagSet::toggle(const char* names, bool& target, const char* help) {
  finish(app_.add_flag(names, target, help), nullptr);
}

void FlagSet::toggle(const char* names, const char* help) {
  const std::string description = help;
  finish(app_.add_flag(names, description), nullptr);
}

void FlagSet::toggle(const char* names, int& target, const char* help) {
  finish(app_.add_flag(names, target, help), nullptr);
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
    // Only for the verb in use: a bad value for one verb must not stop another.
    verb->preparse_callback([verb](size_t) {
      for (CLI::Option* flag : verb->get_options()) flag->envname(env_name(*verb, *flag));
    });
    attach_environment(*verb);
  }
}

size_t edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> table((a.size() + 1) * width);  // [prefix of a, prefix of b]
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& cell = table[i * width + j];
      if (i == 0 || j == 0) {
        cell = i + j;
        continue;
      }
      const size_t replaced = table[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cell = std::min({table[(i - 1) * width + j] + 1, table[i * width + j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cell = std::min(cell, table[(i - 2) * width + j - 2] + 1);
      }
    }
  }
  return table.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const size_t most = std::max<size_t>(1, word.size() / 3);
  std::string best;
  size_t best_distance = most + 1;
  for (const std::string& candidate : candidates) {
    const bool is_beginning = word.size() >= 3 && candidate.starts_with(word);
    const size_t distance = is_beginning ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? std::string() : concat("; did you mean ", found, "?");
}

namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 28;  // column of the descriptions

// Appends `line` and then the words of `text`, wrapped, with further lines indented by `indent`.
void add_wrapped(std::string& page, std::string line, const std::string& text, size_t indent) {
  std::istringstream words(text);
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      page += line + "\n";
      line = std::string(indent, ' ');
      is_first = true;
    }
    line += (is_first ? "" : " ") + word;
  }
  page += line + "\n";
}

// Appends `label` with `text` beside it, or below it if the label is too long.
void add_entry(std::string& page, const std::string& label, const std::string& text,
               size_t indent) {
  std::string line = "  " + label;
  if (line.size() + 2 > indent) {
    page += line + "\n";
    line.clear();
  }
  line.resize(indent, ' ');
  add_wrapped(page, std::move(line), text, indent);
}

// "-n, --max-tokens N".
std::string label_of(const CLI::Option& flag) {
  std::string label;
  for (const std::string& name : flag.get_snames()) label += (label.empty() ? "-" : ", -") + name;
  for (const std::string& name : flag.get_lnames()) label += (label.empty() ? "--" : ", --") + name;
  if (flag.get_items_expected_max() > 0) label += " " + flag.get_type_name();
  return label;
}

std::string description_of(const CLI::App& verb, const CLI::Option& flag, bool is_all) {
  std::string text = flag.get_description();
  const std::string value = flag.get_default_str();
  if (!value.empty() && value != "0" && value != "-1" && value != "[]" && value != "\"\"") {
    text += concat(" (default ", value, ")");
  }
  const std::string environment = env_name(verb, flag);
  if (is_all && !environment.empty()) text += concat(" [", environment, "]");
  return text;
}

std::string usage_of(const CLI::App& verb) {
  std::string usage = full_name(verb);
  if (verb.get_require_subcommand_min() > 0) usage += " VERB";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) usage += concat(" [", option->get_name(true), "]");
  }
  return usage + " [flags]";
}

void add_flags(std::string& page, const CLI::App& verb, bool is_all) {
  for (const std::string& group : verb.get_groups()) {
    if (group.empty() || (!is_all && group.starts_with(kAdvanced))) continue;
    std::string entries;
    for (const CLI::Option* flag : verb.get_options()) {
      if (flag->get_group() != group || flag->get_positional()) continue;
      // Every verb has -h, shown on the program's page only, and --help-all, shown in the footer.
      if (flag == verb.get_help_ptr() && verb.get_parent() != nullptr) continue;
      if (flag == verb.get_help_all_ptr()) continue;
      add_entry(entries, label_of(*flag), description_of(verb, *flag, is_all), kIndent);
    }
    if (!entries.empty()) page += "\n" + group + ":\n" + entries;
  }
}

bool has_advanced(const CLI::App& verb) {
  for (const std::string& group : verb.get_groups()) {
    if (group.starts_with(kAdvanced)) return true;
  }
  return false;
}

}  // namespace

std::string full_name(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return verb.get_name();
  return full_name(*verb.get_parent()) + " " + verb.get_name();
}

std::string HelpFormatter::make_help(const CLI::App* verb, std::string,
                                     CLI::AppFormatMode mode) const {
  const bool is_all = mode == CLI::AppFormatMode::All;
  std::string page = usage_of(*verb) + "\n";
  add_wrapped(page, "  ", verb->get_description(), 2);
  std::string entries;
  for (const CLI::Option* option : verb->get_options()) {
    if (!option->get_positional()) continue;
    add_entry(entries, option->get_name(true), option->get_description(), kIndent);
  }
  if (!entries.empty()) page += "\n" + entries;
  entries.clear();
  for (const CLI::App* sub : verb->get_subcommands(nullptr)) {
    add_entry(entries, sub->get_name(), sub->get_description(), 16);
  }
  if (!entries.empty()) page += "\nVerbs:\n" + entries;
  add_flags(page, *verb, is_all);
  // Verbs inherit the footer of the program.
  if (verb->get_parent() == nullptr) {
    page += "\n" + verb->get_footer() + "\n";
  } else if (!is_all) {
    page += concat("\n", has_advanced(*verb) ? "More flags, and e" : "E",
                   "nvironment variables: ", full_name(*verb), " --help-all\n");
  }
  return page;
}

}  // namespace tessera::apps
