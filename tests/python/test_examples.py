# Every Python block of docs/python.md runs, and help() has something to show for every name.
# SPDX-License-Identifier: MIT
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tessera

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_examples_run(block, tmp_path):
    for name in ("torch", "transformers"):
        if re.search(rf"^(import|from) (tessera\.)?{name}\b", block, re.MULTILINE):
            pytest.importorskip(name)
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    environment["TESSERA_LIBRARY"] = tessera.library_path
    command = [sys.executable, "-B", "-W", "error:tessera:RuntimeWarning", "-c", block]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples():
    assert len(BLOCKS) == 4


def test_help_has_something_to_show():
    for name in tessera.__all__:
        if not name.startswith("__"):
            assert getattr(tessera, name).__doc__ or isinstance(getattr(tessera, name), str), name


def test_types_are_consistent():
    probe = [sys.executable, "-m", "mypy", "--version"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull]
    done = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
