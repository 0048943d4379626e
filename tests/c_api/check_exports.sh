#!/bin/sh
# Fails if a shared library shows a symbol without the prefix tessera_, none at all, or one that the
# tests of NULL arguments do not name.
# SPDX-License-Identifier: MIT
# usage: check_exports.sh NM LIBRARY TEST...
set -eu
symbols=$("$1" -D --defined-only "$2" | awk '{print $NF}')
shift 2
strangers=$(printf '%s\n' "$symbols" | grep -v '^tessera_' || true)
if [ -n "$strangers" ]; then
  printf 'symbols that are not of the C ABI:\n%s\n' "$strangers"
  exit 1
fi
if ! printf '%s\n' "$symbols" | grep -q '^tessera_rms_norm$'; then
  echo 'tessera_rms_norm is not shown'
  exit 1
fi
untested=$(printf '%s\n' "$symbols" | while read -r symbol; do
  grep -q "\b$symbol\b" "$@" || echo "$symbol"
done)
if [ -n "$untested" ]; then
  printf 'functions that %s do not name:\n%s\n' "$*" "$untested"
  exit 1
fi
