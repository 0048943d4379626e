#!/usr/bin/env bash
# Profiles every step of a ladder once with ncu, and writes a few metrics to one JSON file.
# SPDX-License-Identifier: MIT
#
#   tools/ladder_ncu.sh BINARY OUT.json [SIZE]      BINARY is ladder/gemm/tessera_ladder of a build,
#                                                   or ladder/attention/tessera_attention_ladder
#
# A step that cannot be profiled is reported and left out; the exit status is then 1.
set -u
cd "$(dirname "$0")/.."

if [ $# -lt 2 ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0"
  exit 2
fi
binary=$1 json=$2 size=${3:-4096}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v ncu >/dev/null; then
  echo "ladder_ncu: no ncu on PATH"
  exit 2
fi
metrics=$("$python" -B tools/render_ladder.py --metrics) || exit 2
status=0
for step in $("$binary" --list | cut -d' ' -f1); do
  # Clocks are not locked, so that profiles are taken under the same conditions as timings.
  if timeout 60 ncu --clock-control none -k 'regex:gemm|attention' --csv --print-units base \
    --metrics "$metrics" --log-file "$work/$step.csv" \
    "$binary" --once --step "$step" --size "$size" >"$work/$step.log" 2>&1 &&
    grep -q gpu__time_duration "$work/$step.csv"; then
    echo "$step: profiled"
  else
    echo "$step: not profiled"
    tail -3 "$work/$step.log" "$work/$step.csv" 2>/dev/null
    rm -f "$work/$step.csv"
    status=1
  fi
done
"$python" -B tools/render_ladder.py --gather "$work" --size "$size" \
  --commit "$("$binary" --version)" --json "$json" || status=1
exit $status
