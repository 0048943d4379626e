// The whole command line: verbs, help, errors and exit statuses.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace tessera::apps {

// All verbs with their flags. A verb's callback runs it and leaves its status in `exit_status`.
std::unique_ptr<CLI::App> make_command_line(int& exit_status);

// One line that says what is wrong and what to do, without the program's name before it.
std::string explain(const CLI::App& root, const CLI::ParseError& error);

// Parses and runs. 0: it worked, 1: it failed, 2: the command line cannot be meant. What went wrong
// goes to standard error in one line.
int run_command_line(int argc, const char* const* argv);

}  // namespace tessera::apps
