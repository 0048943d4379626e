// The verbs of the command line. Each adds its subcommand; its callback leaves the exit status.
// SPDX-License-Identifier: MIT
#pragma once

namespace CLI {
class App;
}

namespace tessera::apps {

void add_bench(CLI::App& app, int& exit_status);
void add_doctor(CLI::App& app, int& exit_status);

}  // namespace tessera::apps
