# The official client as the judge of compatibility.
# SPDX-License-Identifier: MIT
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import serving

CASES = Path(__file__).parent / "openai_cases.py"


@pytest.fixture(scope="session")
def client_python(tmp_path_factory):
    """A Python that has the package openai, in an environment of its own."""
    import os
    given = os.environ.get("TESSERA_OPENAI_PYTHON")
    if given:
        return given
    folder = tmp_path_factory.mktemp("openai")
    for command in ([sys.executable, "-m", "venv", str(folder)],
                    [str(folder / "bin/pip"), "install", "-q", "--disable-pip-version-check",
                     "openai"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            pytest.skip("the package openai cannot be installed: " + done.stderr.strip()[-200:])
    return str(folder / "bin/python")


def run_cases(python, server, group):
    done = subprocess.run([python, str(CASES), f"http://127.0.0.1:{server.port}/v1", group],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


def test_completions_models_and_errors(client_python, server):
    run_cases(client_python, server, "base")


def test_chat(client_python, chat_server):
    run_cases(client_python, chat_server, "chat")


def test_keys_and_overload(client_python, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("right\n")
    with serving("--api-keys", keys, "--max-batch", "1", "--max-queue", "0") as one:
        run_cases(client_python, one, "limits")
