#!/bin/sh
# Prints the path of an nvcc that can build this tree; prints nothing if there is none.
# SPDX-License-Identifier: MIT
set -eu

oldest=13.0  # the oldest version that has been tested

too_old=
for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
  if ! [ -x "$nvcc" ]; then continue; fi
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  if [ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n 1)" = "$oldest" ]; then
    echo "$nvcc"
    exit 0
  fi
  too_old="$nvcc is version ${version:-unknown}"
done
if [ -n "$too_old" ]; then
  echo "$too_old; CUDA $oldest or newer is needed. Building the CPU side only." >&2
fi
