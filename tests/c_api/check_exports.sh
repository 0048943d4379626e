#!/bin/sh
# Fails if a shared library shows a symbol without the prefix tessera_, or none at all.
# SPDX-License-Identifier: MIT
# usage: check_exports.sh NM LIBRARY
set -eu
symbols=$("$1" -D --defined-only "$2" | awk '{print $NF}')
strangers=$(printf '%s\n' "$symbols" | grep -v '^tessera_' || true)
if [ -n "$strangers" ]; then
  printf 'symbols that are not of the C ABI:\n%s\n' "$strangers"
  exit 1
fi
if ! printf '%s\n' "$symbols" | grep -q '^tessera_rms_norm$'; then
  echo 'tessera_rms_norm is not shown'
  exit 1
fi
