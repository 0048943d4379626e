// What -h and --help-all print: grouped flags, wrapped to 80 columns.
// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera::apps {

// -h (Normal) leaves out the groups whose name begins with kAdvanced; --help-all (All) shows every
// flag with its environment variable.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* verb, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// "tessera bench e2e".
std::string full_name(const CLI::App& verb);

}  // namespace tessera::apps
