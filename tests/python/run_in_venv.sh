#!/bin/sh
# Runs the tests that need packages from PyPI; ends with 77, which CTest takes for skipped, if there
# is no environment with them. Usage: run_in_venv.sh FOLDER
# SPDX-License-Identifier: MIT
set -eu
sh ../../tools/python_venv.sh "$1"
if [ ! -x "$1/bin/python" ]; then
  exit 77
fi
# PyTorch's threads spin while they wait, which is slow beside other tests.
export OMP_NUM_THREADS=1
exec "$1/bin/python" -B -m pytest -q -rs -p no:cacheprovider test_custom_ops.py \
  test_custom_kv_ops.py test_nn.py test_compat.py test_hf.py test_hf_graph.py test_compile.py \
  test_lm_eval.py test_examples.py test_notebooks.py \
  test_install.py::test_auditwheel_finds_the_same_tag
