// tessera: one binary, one verb per task.
// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <iostream>

#include "apps/verbs.h"

int main(int argc, char** argv) {
  CLI::App app("Tessera: kernels for LLM inference, and the tools around them.", "tessera");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.require_subcommand(1);
  int exit_status = 0;
  tessera::apps::add_doctor(app, exit_status);
  tessera::apps::add_bench(app, exit_status);
  app.add_subcommand("version", "Prints the version")->callback([] {
    std::cout << TESSERA_VERSION << "\n";
  });
  app.add_subcommand("help", "Prints this")->callback([&] { std::cout << app.help(); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::cerr << "tessera: " << error.what() << "\n";
    return 1;
  }
  return exit_status;
}
