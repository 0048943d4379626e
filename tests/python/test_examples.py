# Every Python block of docs/python.md runs, and help() has something to show for every name.
# SPDX-License-Identifier: MIT
import importlib
import os
import re
import subprocess
import sys
import types
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
    assert len(BLOCKS) == 5


def undocumented(owner, names):
    """Those of the names for which help() has nothing but a signature."""
    found = []
    for name in names:
        value = getattr(owner, name)
        is_data = isinstance(value, (str, tuple, types.ModuleType))
        if not is_data and not getattr(value, "__doc__", None):
            found.append(f"{owner.__name__}.{name}")
        if isinstance(value, type) and value.__module__.startswith("tessera"):
            own = [one for one in vars(value) if not one.startswith("_") and one != "forward"]
            own = [one for one in own if callable(getattr(value, one))]
            found += undocumented(value, [one for one in own if one not in INHERITED])
    return found


# Methods that PyTorch and Transformers define and explain.
INHERITED = {"extra_repr", "get_extra_state", "set_extra_state"}


def test_help_has_something_to_show():
    names = [name for name in tessera.__all__ if not name.startswith("__")]
    assert undocumented(tessera, names) == []


@pytest.mark.parametrize("name", ["nn", "hf", "compat", "torch", "lm_eval"])
def test_help_has_something_to_show_of_modules(name):
    needed = {"hf": "transformers", "compat": "transformers", "lm_eval": "lm_eval"}
    needed = needed.get(name, "torch")
    pytest.importorskip(needed)
    try:
        module = importlib.import_module("tessera." + name)
    except ImportError as error:
        pytest.skip(str(error))
    assert module.__doc__ and "tessera" in module.__doc__ + module.__name__
    names = {"torch": [], "lm_eval": ["TesseraLM"]}.get(name) or getattr(module, "__all__", [])
    assert undocumented(module, names) == []


def test_types_are_consistent():
    probe = [sys.executable, "-m", "mypy", "--version"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        pytest.skip("mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull]
    done = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
