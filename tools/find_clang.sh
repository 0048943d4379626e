#!/bin/sh
# Prints a clang++ that can build the fuzz targets (16 or newer, with libFuzzer). Status 1: none.
# SPDX-License-Identifier: MIT
for version in 20 19 18 17 16; do
  compiler=$(command -v "clang++-$version") || continue
  runtime=$("$compiler" --print-file-name=libclang_rt.fuzzer-x86_64.a)
  [ -e "$runtime" ] || [ -e "$(dirname "$runtime")/libclang_rt.fuzzer.a" ] || continue
  echo "$compiler"
  exit 0
done
exit 1
