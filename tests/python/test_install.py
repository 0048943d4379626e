# The wheel: installed into an empty environment outside the tree, it has its library and a model.
# SPDX-License-Identifier: MIT
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tessera

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import tessera
print(tessera.__file__)
print(tessera.library_path)
with tessera.LLM(device="cpu", dtype="f32", max_batch=1, context=64) as llm:
    print(llm.generate("The history of", temperature=0, max_tokens=4)[0].tokens)
"""


def clean_environment():
    """The variables of this process without those that lead to the checkout."""
    dropped = ("PYTHONPATH", "TESSERA_LIBRARY", "TESSERA_MODEL")
    return {name: value for name, value in os.environ.items() if name not in dropped}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    probe = "from setuptools import Distribution as D; D().get_command_class('bdist_wheel')"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode != 0:
        pytest.skip("setuptools here cannot build wheels: install python3-wheel")
    # A copy, because setuptools leaves its working files beside the sources.
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    shutil.copytree(ROOT / "python", folder / "tree" / "python", ignore=ignored)
    for name in ("include", "models"):
        (folder / "tree" / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-build-isolation"]
    command += ["--no-deps", "-w", str(folder), str(folder / "tree" / "python")]
    # The library of this build, so that nothing is compiled again.
    environment = dict(os.environ, TESSERA_WHEEL_LIBRARY=tessera.library_path)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0 and "No module named pip" in done.stderr:
        pytest.skip("this Python has no pip")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def expect_answer(command, tmp_path, environment):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    where, library, tokens = done.stdout.split("\n")[:3]
    assert str(tmp_path) in where and str(tmp_path) in library
    with tessera.LLM(device="cpu", dtype="f32", max_batch=1, context=64) as llm:
        assert tokens == str(llm.generate("The history of", temperature=0, max_tokens=4)[0].tokens)


def test_the_wheel_is_for_any_python_of_one_platform(wheel):
    assert re.match(r"tessera-0\.1\.0-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name), wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "tessera/lib/libtessera.so" in names and "tessera/py.typed" in names
    assert "tessera/models/tessera-13m/config.json" in names


def test_auditwheel_finds_the_same_tag(wheel):
    """Also that the library needs nothing that a machine without a compiler may lack."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No module named auditwheel" in done.stderr:
        pytest.skip("auditwheel is not installed")
    text = " ".join(done.stdout.split())
    tag = re.search(r"manylinux_2_\d+_\w+", wheel.name)[0]
    assert done.returncode == 0, done.stderr
    assert f'consistent with the following platform tag: "{tag}"' in text, text
    needed = set(re.findall(r"(lib[\w+-]+\.so[.\d]*) with versions", text))
    assert needed <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"}, text


def test_the_extras_for_development_can_be_resolved():
    text = (ROOT / "python" / "pyproject.toml").read_text()
    for package in ("mypy", "pytest", "torch", "transformers", "auditwheel", "lm_eval"):
        assert re.search(rf'^dev = \[.*"{package}', text, re.MULTILINE), package


def test_runs_in_an_empty_environment(wheel, tmp_path):
    venv = pytest.importorskip("venv")
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    expect_answer([python, "-c", PROGRAM], tmp_path, clean_environment())


@pytest.mark.parametrize("minor", range(9, 15))
def test_runs_on_every_python_it_promises(wheel, tmp_path, minor):
    python = shutil.which(f"python3.{minor}")
    probe = [python, "-c", "import ctypes, sys; print(sys.version_info[1])"]
    done = python and subprocess.run(probe, capture_output=True, text=True)
    if not done or done.stdout.strip() != str(minor):
        pytest.skip(f"there is no Python 3.{minor} here")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = dict(clean_environment(), PYTHONPATH=str(tmp_path / "site"))
    expect_answer([python, "-c", PROGRAM], tmp_path, environment)


def test_a_source_distribution_has_the_sources(tmp_path):
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    shutil.copytree(ROOT / "python", tmp_path / "python", ignore=ignored)
    for name in ("CMakeLists.txt", "LICENSE", "include", "src", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "tessera-0.1.0.tar.gz") as archive:
        names = archive.getnames()
    wanted = ["CMakeLists.txt", "setup.py", "source/CMakeLists.txt", "source/include/tessera/c.h"]
    wanted += ["source/src/c_api/CMakeLists.txt", "source/models/tessera-13m/config.json"]
    for name in wanted:
        assert f"tessera-0.1.0/{name}" in names


def test_says_which_python_it_needs():
    assert 'requires-python = ">=3.9"' in (ROOT / "python" / "pyproject.toml").read_text()
