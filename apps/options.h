// How the flags of a verb are added, what their environment variables are called, how numbers read.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::apps {

// A command line that cannot be meant as it stands: exit status 2, where Error is 1.
class UsageError : public Error {
  using Error::Error;
};

// What `check` returns. What it refuses of values that flags have set is a wrong command line.
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
// follow. None where the text is no such number, is negative, or is 2^63 or more.
std::optional<int64_t> parse_quantity(std::string_view text);

// What is wrong with the text of a number, whole or not, of a flag; empty: nothing. All of the text
// must be the number, and the number must fit into T: nothing is clamped, and nothing is not 0.
template <class T>
std::string number_problem(std::string_view text);

// Groups whose name begins so are left out of -h and shown by --help-all.
inline constexpr std::string_view kAdvanced = "Advanced";

// Adds flags of one group to a verb. Defaults are what the targets hold at the time.
class FlagSet {
 public:
  FlagSet(CLI::App& verb, std::string group) : verb_(verb), group_(std::move(group)) {}

  template <class T>
  CLI::Option* value(const char* names, T& target, const char* type, const char* help) {
    CLI::Option* option = verb_.add_option(names, target, help)->capture_default_str();
    if constexpr (std::is_arithmetic_v<T>) {
      option->check(CLI::Validator([](std::string& text) { return number_problem<T>(text); }, ""));
    }
    return finish(option, type);
  }
  // An integer that may be written 32K or 2G.
  CLI::Option* quantity(const char* names, int64_t& target, const char* type, const char* help);
  CLI::Option* choice(const char* names, std::string& target, std::vector<std::string> choices,
                      const char* help);
  CLI::Option* toggle(const char* names, bool& target, const char* help);
  // One that only the option itself remembers.
  CLI::Option* toggle(const char* names, const char* help);
  // "--x,!--no-x": 1 and -1; 0 where neither was given.
  CLI::Option* toggle(const char* names, int& target, const char* help);

 private:
  CLI::Option* finish(CLI::Option* option, const char* type);

  CLI::App& verb_;
  std::string group_;
};

// TESSERA_RUN_TOP_P for --top-p of run, TESSERA_BENCH_E2E_BATCH for --batch of bench e2e, and
// TESSERA_DTYPE for a flag that means the same to every verb. Empty for the help flags.
std::string env_name(const CLI::App& verb, const CLI::Option& flag);

// Every flag of every verb below `root` is read from its environment variable where the command
// line does not give it, as soon as its verb is met. Called once all verbs are there.
void attach_environment(CLI::App& root);

}  // namespace tessera::apps
