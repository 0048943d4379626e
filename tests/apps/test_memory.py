# The binary with less memory than it wants: it says so, and is never ended by a signal.
# SPDX-License-Identifier: MIT
import os
import resource
import subprocess

import pytest

from conftest import MODEL

MB = 1 << 20


def call_within(limit, *arguments):
    """Runs the binary with two threads and at most `limit` bytes of address space."""
    return subprocess.run([os.environ["TESSERA_BINARY"], *map(str, arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, TESSERA_THREADS="2"),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


@pytest.mark.parametrize("flags", [[], ["--weights", "int8"], ["--kv", "int8"]], ids=str)
def test_too_little_memory_is_an_error(flags):
    if call_within(400 * MB, "--version").returncode != 0:
        pytest.skip("a sanitizer wants more address space than any limit leaves it")
    seen = set()
    for megabytes in range(52, 142, 3):
        done = call_within(megabytes * MB, "run", MODEL, "Once", "-n", "4", *flags)
        assert done.returncode >= 0, (megabytes, done.returncode, done.stderr)  # no signal
        if done.returncode > 0:
            assert done.stderr.startswith("tessera: "), (megabytes, done.stderr)
        seen.add(done.returncode == 0)
    assert seen == {True, False}  # some limits are too low and some are enough
