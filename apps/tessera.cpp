// tessera: one binary, one verb per task.
// SPDX-License-Identifier: MIT
#include "apps/verbs.h"

int main(int argc, char** argv) { return tessera::apps::run_command_line(argc, argv); }
