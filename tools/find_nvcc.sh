#!/bin/sh
# Prints the path of an nvcc this tree can use; prints nothing where there is none.
# SPDX-License-Identifier: MIT
set -eu

oldest=12.4  # C++20, sm_90a and the runtime calls src/kernels/launch.cpp makes

nvcc=${CUDACXX:-$(command -v nvcc || true)}
if [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ]; then nvcc=/usr/local/cuda/bin/nvcc; fi
if [ -z "$nvcc" ]; then exit 0; fi

version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n 1)" != "$oldest" ]; then
  echo "$nvcc is version ${version:-unknown}; CUDA $oldest or newer is needed." \
    "Building the CPU side only." >&2
  exit 0
fi
echo "$nvcc"
