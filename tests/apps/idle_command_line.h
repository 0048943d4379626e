// A command line that is parsed and not run.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.h"

namespace tessera::apps {

struct IdleCommandLine {
  int exit_status = 0;
  std::unique_ptr<CLI::App> app = make_command_line(exit_status);
  std::vector<CLI::App*> verbs;  // all, bench e2e among them

  IdleCommandLine() {
    // The program's callback comes before those of verbs, so none of them runs.
    app->parse_complete_callback([] { throw Parsed{}; });
    collect(*app);
  }

  // Throws CLI11's exception if the arguments do not parse.
  void parse(const std::string& arguments) {
    try {
      app->parse(arguments);
    } catch (const Parsed&) {
    }
  }

 private:
  struct Parsed {};

  void collect(CLI::App& above) {
    for (CLI::App* verb : above.get_subcommands(nullptr)) {
      verbs.push_back(verb);
      collect(*verb);
    }
  }
};

}  // namespace tessera::apps
