# `pip install ./python` in a fresh environment, with nothing downloaded and nothing compiled.
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tessera

ROOT = Path(__file__).resolve().parents[2]


def test_pip_installs_the_package(tmp_path):
    venv = pytest.importorskip("venv")
    venv.create(tmp_path / "env", with_pip=True, system_site_packages=True)
    python = str(tmp_path / "env" / "bin" / "python")
    probe = "from setuptools import Distribution as D; D().get_command_class('bdist_wheel')"
    if subprocess.run([python, "-c", probe], capture_output=True).returncode != 0:
        pytest.skip("setuptools here cannot build wheels: install python3-wheel")
    source = tmp_path / "python"
    # A copy, because setuptools leaves its working files beside the sources.
    subprocess.run(["cp", "-r", str(ROOT / "python"), str(source)], check=True)
    install = [python, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps"]
    done = subprocess.run([*install, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = dict(os.environ, TESSERA_LIBRARY=tessera.library_path)
    environment.pop("PYTHONPATH", None)
    program = (
        "import numpy, tessera; print(tessera.__file__); "
        "print(tessera.relu(numpy.float32([[-1, 2]])).tolist())"
    )
    command = [python, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    where, result = done.stdout.split("\n")[:2]
    assert str(tmp_path) in where and result == "[[0.0, 2.0]]"


def test_runs_on_the_python_it_promises():
    assert sys.version_info >= (3, 9)
    assert 'requires-python = ">=3.9"' in (ROOT / "python" / "pyproject.toml").read_text()
