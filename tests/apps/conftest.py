# The binary under test, and a way to call it.
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models" / "tessera-13m"


def call(*arguments, stdin="", **environment):
    """Runs `tessera ARGUMENTS` with no TESSERA_ variables but those given; text in and out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    kept.update(environment)
    return subprocess.run([os.environ["TESSERA_BINARY"], *map(str, arguments)], input=stdin,
                          capture_output=True, text=True, env=kept, timeout=300)


def call_json(*arguments, **named):
    done = call(*arguments, **named)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def oracle():
    return json.loads((MODEL / "oracle.json").read_text())


def pytest_configure(config):
    if "TESSERA_BINARY" not in os.environ:
        raise pytest.UsageError("TESSERA_BINARY must name the tessera binary; ctest sets it")
