#!/usr/bin/env bash
# Runs everything that needs a GPU: tests, sanitizers, benches, comparisons. Needs a finished build.
# SPDX-License-Identifier: MIT
#
#   tools/gpu_suite.sh [BUILD] [--tests] [--sanitize] [--bench] [--compare] [--out DIR]
#                      [--family NAME] [--limit SECONDS] [--shapes NAME]
#   tools/gpu_suite.sh [BUILD] --pack FILE.tar.xz      packs the parts of a build that it needs
#
# If no part is named, all parts run. Each step has a time limit (default 300 s). Logs and JSON go
# to the output folder (default gpu_suite_out), a summary comes last, and the exit status is 0 only
# if every step passed. It needs neither cmake nor ctest, and uses pytest if it is installed. BUILD
# may be a file made by --pack; it is unpacked beside the file.
set -u
cd "$(dirname "$0")/.." || exit 2

build=build/release out=${OUT:-gpu_suite_out} family=elementwise limit=300 shapes='' pack=''
parts=''
while [ $# -gt 0 ]; do
  case "$1" in
    --tests | --sanitize | --bench | --compare) parts="$parts ${1#--}" ;;
    --out) out=$2 && shift ;;
    --family) family=$2 && shift ;;
    --limit) limit=$2 && shift ;;
    --shapes) shapes=$2 && shift ;;
    --pack) pack=$2 && shift ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "gpu_suite: unknown option $1; see --help" && exit 2 ;;
    *) build=$1 ;;
  esac
  shift
done
[ -n "$parts" ] || parts="tests sanitize bench compare"
has_part() { case " $parts " in *" $1 "*) true ;; *) false ;; esac; }

gpu_tests() { find "$build/tests" -type f -perm -u+x -name '*_gpu_tests' | sort; }

case $build in
  *.tar.xz)
    mkdir -p "${build%.tar.xz}" && tar -xJf "$build" -C "${build%.tar.xz}" || exit 2
    build=${build%.tar.xz}
    ;;
esac
if [ ! -x "$build/apps/tessera" ]; then
  echo "gpu_suite: $build/apps/tessera is missing; build first, or name the build folder"
  exit 2
fi
if [ -n "$pack" ]; then
  (cd "$build" && find . -type f -perm -u+x \( -path ./apps/tessera -o -name libtessera.so \
    -o -path './tests/*_gpu_tests' -o -path ./ladder/gemm/tessera_ladder \
    -o -path ./ladder/attention/tessera_attention_ladder \) -print0 |
    tar -c --null -T -) |
    xz -T1 --lzma2=preset=3,dict=512MiB >"$pack"  # a large dictionary: programs share kernels
  ls -l "$pack"
  exit
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
export TESSERA_REQUIRE_GPU=1
export TESSERA_BINARY=$build/apps/tessera
library=$(find "$build" -name 'libtessera.so' | head -1)
if [ -n "$library" ]; then
  TESSERA_LIBRARY=$(cd "$(dirname "$library")" && pwd)/libtessera.so
  export TESSERA_LIBRARY
fi
python=${PYTHON:-python3}

summary=()
num_failed=0
# Lines of a log to repeat in the summary.
telling='^\[  PASSED  \]|^ *[0-9]+ FAILED TEST|ERROR SUMMARY|RACECHECK SUMMARY|^[0-9]+ passed'
# step NAME COMMAND…: runs the command with the time limit, keeps its log, shows the end on failure.
step() {
  local name=$1 started=$SECONDS status result detail
  shift
  echo "== $name"
  timeout "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  case $status in
    0) result=passed ;;
    124) result="out of time" ;;
    *) result="failed ($status)" ;;
  esac
  detail=$(grep -E "$telling" "$out/$name.log" | tail -1 | cut -c1-60)
  summary+=("$(printf '%-44s %-14s %5ss  %s' "$name" "$result" $((SECONDS - started)) "$detail")")
  if [ $status -ne 0 ]; then
    num_failed=$((num_failed + 1))
    grep -vE '^\[ (RUN|      OK)' "$out/$name.log" | tail -25
  fi
}
skip() { summary+=("$(printf '%-44s %-14s        %s' "$1" skipped "$2")"); }

# For `bash -c`: N copies of a GoogleTest program in parallel, each with its share of the tests.
# shellcheck disable=SC2016  # the inner shell expands it
sharded='n=$1; shift; pids=
for i in $(seq 0 $((n - 1))); do
  GTEST_TOTAL_SHARDS=$n GTEST_SHARD_INDEX=$i "$@" &
  pids="$pids $!"
done
status=0; for pid in $pids; do wait "$pid" || status=$?; done; exit $status'

run_tests() {
  local test
  for test in $(gpu_tests); do step "$(basename "$test")" "$test" --gtest_brief=1; done
  if [ -z "$library" ] || ! "$python" -c 'import torch' 2>/dev/null; then
    skip python_cuda "no libtessera.so or no PyTorch"
  elif "$python" -c 'import pytest' 2>/dev/null; then
    step python_cuda "$python" -B -m pytest -q -rs -p no:cacheprovider \
      tests/python/test_torch_cuda.py tests/python/test_hf_cuda.py tests/python/test_custom_ops.py \
      tests/python/test_custom_kv_ops.py
  else
    step python_cuda "$python" -B tools/python_cuda_cases.py
  fi
}

# Tests in which racecheck would report false races: it follows neither bar.arrive nor arrivals from
# another block of a cluster. Our rows use clusters only for large products; cuBLASLt may always.
untraced='BarrierTest.*:ClusterTest.MemoryOfANeighbour*:PipelineTest.BlocksOfACluster*'
untraced="$untraced:*Step13_clusters*:*cublaslt*"

# Small shapes of every row and of the ladder, and the tile tests. Of the row tests only the exact
# ones run, because they cover the same kernels. Memcheck does not report API errors, because one
# test asks for more memory than there is.
run_sanitizers() {
  local tool test filter name shards options
  if ! command -v compute-sanitizer >/dev/null; then
    summary+=("$(printf '%-44s %-14s' sanitize "failed: no compute-sanitizer on PATH")")
    num_failed=$((num_failed + 1))
    return
  fi
  for tool in memcheck racecheck synccheck initcheck; do
    for test in $(gpu_tests); do
      name=$(basename "$test")
      filter='*'
      shards=1
      case $name in
        tessera_fault_gpu_tests) continue ;;  # its kernels fault on purpose
        tessera_bench_gpu_tests) continue ;;  # CUPTI does not work beside a sanitizer
        tessera_ops_gpu_tests) filter='*IsExactOnIntegers*' shards=8 ;;
        tessera_engine_gpu_tests) filter='EngineOnGpu.*' ;;
      esac
      options=()
      case $tool in
        memcheck) options=(--report-api-errors no) ;;
        racecheck) filter="$filter-$untraced" ;;
      esac
      TESSERA_THREADS=2 TESSERA_SMALL=1 step "${tool}_$name" bash -c "$sharded" sharded $shards \
        compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 20 "${options[@]}" \
        "$test" --gtest_brief=1 --gtest_filter="$filter"
    done
  done
}

run_bench() {
  local options=("$family" --json "$out/$family.json")
  [ -z "$shapes" ] || options+=(--shapes "$shapes")
  step doctor "$build/apps/tessera" doctor
  if ! grep -q '^GPU 0' "$out/doctor.log"; then
    summary+=("$(printf '%-44s %-14s' "bench_$family" "failed: no GPU; see doctor.log")")
    num_failed=$((num_failed + 1))
    return
  fi
  step "bench_$family" "$build/apps/tessera" bench "${options[@]}"
  cat "$out/doctor.log" "$out/bench_$family.log"
}

# compare NAME OPTION...: times peers, and adds them to the results of the bench if there are any.
compare() {
  local name=$1 options
  shift
  options=(--family "$family" --json "$out/${name}_compare.json" "$@")
  options+=(--budget $((limit * 8 / 10)))  # so that results are written before the limit
  [ ! -f "$out/$family.json" ] || options+=(--merge "$out/$family.json")
  step "compare_$name" "$python" -B bench/compare.py "${options[@]}"
  cat "$out/compare_$name.log"
}

run_compare() {
  compare "$family" ${shapes:+--shapes "$shapes"}
  if [ "$family" = gemm ] && [ "${shapes:-gemm/f32}" = gemm/f32 ]; then
    compare gemm_f32 --shapes gemm/f32 --dtype f32
  fi
}

if has_part tests; then run_tests; fi
if has_part sanitize; then run_sanitizers; fi
if has_part bench; then run_bench; fi
if has_part compare; then run_compare; fi

echo "== summary"
printf '%s\n' "${summary[@]}" | tee "$out/summary.txt"
if [ "$num_failed" -gt 0 ]; then
  echo "$num_failed of ${#summary[@]} steps failed; logs in $out"
  exit 1
fi
echo "all ${#summary[@]} steps passed; results in $out"
