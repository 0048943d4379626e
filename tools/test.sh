#!/bin/bash
# The body of `make test`, after set-up: checks, build, tests, and a summary.
# Usage: tools/test.sh PRESET
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
build=build/$preset
python=${TESSERA_PYTHON:-/usr/bin/python3}
mkdir -p "$build"

failed=()
summary=()

# Runs one named step, times it, and records a failure without stopping.
step() {
  local name=$1 start=$SECONDS result=ok
  shift
  "$@" || { result=FAILED && failed+=("$name"); }
  summary+=("$(printf '  %-10s %-7s %5d s' "$name" "$result" $((SECONDS - start)))")
}

configure() {
  cmake --preset "$preset" >"$build/configure.log" 2>&1 || { cat "$build/configure.log" && false; }
}

compile() {
  # No more jobs than cores, so that the measured time of a file is its own.
  cmake --build --preset "$preset" -j "$(nproc)" &&
    "$python" tools/build_times.py "$build"
}

# The list of skipped tests, one line each, is left to the log.
run_tests() {
  ctest --preset "$preset" -j "$(nproc)" --output-junit "$PWD/$build/results.xml" |
    tee "$build/ctest.log" | sed '/^The following tests did not run:/,/^$/d'
}

# The README's first command, whose build leaves out the server and the quantisers.
first_command() {
  make run >"$build/run.log" 2>&1 || { tail -n 40 "$build/run.log" && false; }
}

sh tools/test_venv.sh
sh tools/promtool.sh
step layers "$python" tools/check_layers.py
step sizes "$python" tools/check_sizes.py
step docs "$python" tools/check_docs.py
step faults "$python" tools/render_faults.py --check
step bindings "$python" tools/generate_bindings.py --check
step format bash tools/format.sh --check
step configure configure
step build compile
# If the build failed, running the tests would only repeat the compiler's message.
closing="no tests were run"
if [[ ${#failed[@]} -eq 0 || ! " ${failed[*]} " =~ \ (configure|build)\  ]]; then
  step tests run_tests
  closing=$(grep -E 'tests? (passed|failed).* out of ' "$build/ctest.log" || echo "$closing")
  skipped=$(grep -cE '\*\*\*Skipped' "$build/ctest.log" || true)
  if [[ $skipped -gt 0 ]]; then summary+=("  $skipped tests skipped; see $build/ctest.log"); fi
  step run first_command
fi

if [[ " ${failed[*]} " =~ " tests " ]]; then
  "$python" tools/failed_tests.py "$build/results.xml"
fi
echo
echo "make test, preset $preset, $SECONDS s"
printf '%s\n' "${summary[@]}"
if [[ ${#failed[@]} -gt 0 ]]; then echo "  failed: ${failed[*]}"; fi
echo "$closing"
[[ ${#failed[@]} -eq 0 ]]
