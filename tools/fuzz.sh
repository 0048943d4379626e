#!/bin/bash
# Builds the fuzz targets with clang and runs each for SECONDS. Exit status 1: a target failed.
# Usage: tools/fuzz.sh [SECONDS] [TARGET...]
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  targets=(safetensors config gguf stored_layer tokenizer_json tokenizer chat_template)
  targets+=(constraint schema regex tool_calls request)
fi

sh tools/setup.sh fuzz
mkdir -p build/fuzz/findings
compiler=$(sh tools/find_clang.sh) || { echo "No clang 16 or newer was found." >&2 && exit 1; }
configure_log=build/fuzz/configure.log
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" >"$configure_log" 2>&1 ||
  { cat "$configure_log" && exit 1; }
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"

status=0
for target in "${targets[@]}"; do
  # libFuzzer writes new inputs to the first folder; the corpora in the tree are only read.
  found=build/fuzz/found/$target
  mkdir -p "$found"
  log=build/fuzz/$target.log
  dictionary=fuzz/dictionaries/$target.dict
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
           -artifact_prefix="build/fuzz/findings/$target-")
  if [[ -f $dictionary ]]; then options+=(-dict="$dictionary"); fi
  corpora=(fuzz/corpus/"$target")
  case $target in
    schema | regex) corpora=(fuzz/corpus/constraint) ;;
    tokenizer_json) corpora+=(tests/text/tokenizer/data) ;;
    chat_template) corpora+=(tests/text/chat/templates) ;;
  esac
  result=ok
  build/fuzz/fuzz/fuzz_"$target" "${options[@]}" "$found" "${corpora[@]}" \
    >"$log" 2>&1 || { result="FOUND SOMETHING: $log" && status=1; }
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  printf '%-16s %10s runs in %4d s  %s\n' "$target" "${runs:-?}" "$seconds" "$result"
done
exit $status
