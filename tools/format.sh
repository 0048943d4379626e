#!/bin/bash
# Formats every C++ and CUDA source; with --check it only lists the files that are not formatted.
# SPDX-License-Identifier: MIT
set -euo pipefail
cd "$(dirname "$0")/.."

pinned=14  # another major version formats differently

formatter=
for candidate in "clang-format-$pinned" clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q "version $pinned\."; then
    formatter=$candidate
    break
  fi
done
if [[ -z $formatter ]]; then
  echo "format: skipped, no clang-format $pinned on this machine"
  exit 0
fi

mapfile -t files < <("${TESSERA_PYTHON:-/usr/bin/python3}" tools/source_files.py .h .cpp .cu .cuh)
if [[ ${1:-} == --check ]]; then
  unformatted=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1 | grep ' error: ' |
    cut -d: -f1 | uniq || true)
  if [[ -n $unformatted ]]; then
    printf 'format: %s\n' $unformatted >&2
    echo "format: run \`make format\`" >&2
    exit 1
  fi
  echo "format: ${#files[@]} files are formatted"
else
  "$formatter" -i "${files[@]}"
fi
