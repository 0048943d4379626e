// Verbs and flags as the rest of the program adds them. CLI11, which parses them, takes seconds to
// compile and is seen by options.cpp and command_line.cpp alone.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::apps {

// A wrong command line: exit status 2, where Error is 1.
class UsageError : public Error {
  using Error::Error;
};

// Returns what `check` returns. An Error about values that flags have set is a wrong command line.
template <class Check>
auto as_usage(Check&& check) {
  try {
    return check();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

// "32K" is 32768 and "1.5G" is 1610612736: K, M, G and T are powers of 1024, and B or iB may
// follow. None if the text is not such a number, is negative, or is 2^63 or more.
std::optional<int64_t> parse_quantity(std::string_view text);

// What is wrong with the text of a number; empty: nothing. The whole text must be the number, and
// it must fit into T: nothing is clamped, and an empty text is not 0. For int, int64_t, float,
// double.
template <class T>
std::string number_problem(std::string_view text);

// -h leaves out groups whose name begins with this; --help-all shows them.
inline constexpr std::string_view kAdvanced = "Advanced";

inline constexpr const char* kVerbose = "--verbose";
// What a toggle was set to, valid once parsed; none if it was not given. The environment may set it
// to any text: "0" and "false" mean off.
std::optional<bool> toggle_of(const CLI::App& app, const char* name);

// A verb: `tessera run`, `tessera bench e2e`.
class Verb {
 public:
  Verb(CLI::App& above, const char* name, const char* help);

  CLI::App& app() const { return app_; }
  // An argument without a flag.
  void positional(const char* name, std::string& target, const char* help);
  void positional(const char* name, const char* help);  // read by given()
  // For a verb that this build does not have: whatever is given, it runs and says so.
  void take_anything();
  // Called when the command line has been parsed and this verb was given.
  void on_run(std::function<void()> run);

  // The value of a flag or a positional if it was given. Valid once parsed, so for on_run.
  std::optional<std::string> given(const char* name) const;
  bool has_verb_below() const;  // one was given
  bool is_verbose() const;      // --verbose was given, which every verb has; valid once parsed

 private:
  CLI::App& app_;
};

// Adds flags of one group to a verb. Defaults are the values that the targets hold when added.
class FlagSet {
 public:
  FlagSet(const Verb& verb, std::string group) : FlagSet(verb.app(), std::move(group)) {}
  FlagSet(CLI::App& app, std::string group) : app_(app), group_(std::move(group)) {}

  // T: int, int64_t, float, double, std::string, std::optional<double>.
  template <class T>
  void value(const char* names, T& target, const char* type, const char* help);
  // A number from `lowest` to `highest`. T: int, int64_t.
  template <class T>
  void ranged(const char* names, T& target, int lowest, int highest, const char* type,
              const char* help);
  // A flag that may be repeated. Each occurrence takes one value: a flag that took several would
  // swallow the prompt after it.
  void list(const char* names, std::vector<std::string>& target, const char* type,
            const char* help);
  // An integer that may be written 32K or 2G.
  void quantity(const char* names, int64_t& target, const char* type, const char* help);
  void choice(const char* names, std::string& target, std::vector<std::string> choices,
              const char* help);
  void toggle(const char* names, bool& target, const char* help);
  // Without a target: only the option itself remembers it.
  void toggle(const char* names, const char* help);
  // "--x,!--no-x": 1 and -1; 0 if neither was given.
  void toggle(const char* names, int& target, const char* help);

 private:
  template <class T>
  CLI::Option* add(const char* names, T& target, const char* type, const char* help);
  CLI::Option* finish(CLI::Option* option, const char* type);

  CLI::App& app_;
  std::string group_;
};

// Letters inserted, deleted, replaced or swapped with their neighbour to turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest candidate, where it is near enough to be meant: a third of the word's letters may
// differ, or the word is the candidate's beginning. Empty otherwise; the first of equals.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean --seed?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace tessera::apps
