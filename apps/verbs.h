// The verbs of the command line. Each adds its subcommand; its callback leaves the exit status.
// SPDX-License-Identifier: MIT
#pragma once

namespace CLI {
class App;
}

namespace tessera::apps {

void add_run(CLI::App& app, int& exit_status);
void add_bench(CLI::App& app, int& exit_status);
void add_bench_e2e(CLI::App& bench, int& exit_status);  // below bench
void add_perplexity(CLI::App& app, int& exit_status);
void add_eval(CLI::App& app, int& exit_status);
void add_inspect(CLI::App& app, int& exit_status);
void add_doctor(CLI::App& app, int& exit_status);

}  // namespace tessera::apps
