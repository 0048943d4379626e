// The program, and the verbs it is made of.
// SPDX-License-Identifier: MIT
#pragma once

namespace CLI {
class App;
}

namespace tessera::apps {

// Parses the command line and runs its verb. Returns 0 if it worked, 1 if it failed, 2 for a wrong
// command line, 3 if memory is too small, 130 if interrupted. Errors are one line on standard
// error.
int run_command_line(int argc, const char* const* argv);

// Each adds its verb, which sets the exit status when it has run.
void add_run(CLI::App& app, int& exit_status);
void add_bench(CLI::App& app, int& exit_status);
void add_bench_e2e(CLI::App& bench, int& exit_status);    // below bench
void add_bench_serve(CLI::App& bench, int& exit_status);  // below bench
void add_serve(CLI::App& app, int& exit_status);
void add_perplexity(CLI::App& app, int& exit_status);
void add_eval(CLI::App& app, int& exit_status);
void add_quantize(CLI::App& app, int& exit_status);
void add_inspect(CLI::App& app, int& exit_status);
void add_doctor(CLI::App& app, int& exit_status);

}  // namespace tessera::apps
