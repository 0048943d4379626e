# A few seconds of tools/soak_serve.py, which is meant to run for minutes.
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys

from conftest import REPOSITORY


def test_a_soak_leaves_nothing_behind(tiny_model):
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tools/soak_serve.py", os.environ["TESSERA_BINARY"],
         "--seconds", "5", "--clients", "24", "--model", tiny_model],
        capture_output=True, text=True, timeout=120)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
