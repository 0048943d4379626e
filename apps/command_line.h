// The whole command line as CLI11 objects: for command_line.cpp, options.cpp and tests.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::apps {

// All verbs with their flags. The callback of a verb runs it and sets `exit_status`.
std::unique_ptr<CLI::App> make_command_line(int& exit_status);

// A message in which flags are named as the user typed them in `words`: "-n" if that was typed for
// --max-tokens. Also says which environment variable a value came from.
std::string as_typed(const CLI::App& root, std::string message, std::span<const std::string> words);

// One line that says what is wrong and what to do, without the name of the program.
std::string explain(const CLI::App& root, const CLI::ParseError& error,
                    std::span<const std::string> words = {});

// -h (Normal) leaves out the groups whose name begins with kAdvanced; --help-all (All) shows every
// flag with its environment variable.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* verb, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// "tessera bench e2e".
std::string full_name(const CLI::App& verb);

// TESSERA_RUN_TOP_P for --top-p of run, TESSERA_BENCH_E2E_BATCH for --batch of bench e2e, and
// TESSERA_DTYPE for a flag that means the same to every verb. Empty for the help flags.
std::string env_name(const CLI::App& verb, const CLI::Option& flag);

// Lets every flag of every verb below `root` be read from its environment variable if the command
// line does not give it, once its verb is met. Call it after all verbs were added.
void attach_environment(CLI::App& root);

}  // namespace tessera::apps
