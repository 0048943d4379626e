// The whole command line: verbs, help, errors and exit statuses.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::apps {

// All verbs with their flags. A verb's callback runs it and leaves its status in `exit_status`.
std::unique_ptr<CLI::App> make_command_line(int& exit_status);

// A message with every flag named as the user gave it, where `words` is the command line: "-n"
// where that was typed for --max-tokens, and which environment variable a value came from.
std::string as_typed(const CLI::App& root, std::string message, std::span<const std::string> words);

// One line that says what is wrong and what to do, without the program's name before it.
std::string explain(const CLI::App& root, const CLI::ParseError& error,
                    std::span<const std::string> words = {});

// Parses and runs. 0: it worked, 1: it failed, 2: the command line cannot be meant, 3: memory is
// too short for it, 130: interrupted. What went wrong goes to standard error in one line.
int run_command_line(int argc, const char* const* argv);

}  // namespace tessera::apps
