#!/bin/sh
# Makes build/test_venv, a Python environment with the packages of tests/requirements.txt. Takes
# milliseconds if it is there. Without a network it says so, and tests that need it are skipped.
# SPDX-License-Identifier: MIT
set -eu
cd "$(dirname "$0")/.."

venv=build/test_venv
log=build/test_venv.log
stamp=$venv/requirements.txt
if cmp -s tests/requirements.txt "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then exit 0; fi
mkdir -p build
rm -rf "$venv"
if ! "${TESSERA_PYTHON:-/usr/bin/python3}" -m venv "$venv" >"$log" 2>&1 ||
    ! "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt \
      >>"$log" 2>&1; then
  rm -rf "$venv"
  echo "The packages of tests/requirements.txt could not be installed ($log says why):" >&2
  echo "the tests that need them are skipped." >&2
  exit 0
fi
cp tests/requirements.txt "$stamp"
