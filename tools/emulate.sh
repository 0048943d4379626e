#!/bin/bash
# Builds the GPU tests for the emulator (docs/emulator.md) and runs those that make sense there.
# Usage: tools/emulate.sh [ARGUMENTS OF CTEST]
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z $(sh tools/find_nvcc.sh) ]]; then
  echo "emulate: no nvcc that can build the kernels" >&2
  exit 1
fi
build=build/emulator
mkdir -p "$build"
cmake --preset emulator >"$build/configure.log" 2>&1 || { cat "$build/configure.log" && exit 1; }
cmake --build --preset emulator -j "$(nproc)"

# One pattern of names per line; the reason follows behind a #.
left_out=$(sed -e 's/ *#.*//' -e '/^$/d' tests/emulator/left_out.txt | paste -sd '|')
ctest --preset emulator -j "$(nproc)" -E "$left_out" "$@"
