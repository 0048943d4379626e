# Forked processes and processes without memory: neither hangs, and neither ends the interpreter.
# SPDX-License-Identifier: MIT
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import tessera

SECONDS = 60  # a child that hangs is killed, and the test fails


def product(seed):
    """Large enough to run on several threads."""
    numbers = np.random.default_rng(seed)
    a, b = numbers.standard_normal((64, 300)), numbers.standard_normal((256, 300))
    return tessera.gemm(a.astype("float32"), b.astype("float32"))


def test_a_fork_pool_computes_what_its_parent_does():
    want = [product(seed) for seed in range(8)]  # the parent's threads run before the fork
    with multiprocessing.get_context("fork").Pool(4) as pool:
        got = pool.map_async(product, range(8)).get(timeout=SECONDS)
    for ours, theirs in zip(got, want):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(product(0), want[0])  # and the parent goes on


def run_script(text):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), TESSERA_THREADS="2")
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True,
                          text=True, timeout=SECONDS)


# Each thread of the norm needs 32 MB for a row in float, inside the loop over the threads.
WITHOUT_MEMORY = """
import resource
import numpy as np
import tessera

x, weight = np.ones((2, 8_000_000), "float16"), np.ones(8_000_000, "float16")
out = np.empty_like(x)
small = np.ones((64, 300), "float32")
want = tessera.rms_norm(small, small[0])  # threads and their stacks are there
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
try:
    tessera.rms_norm(x, weight, out=out)
    print("no error")
except (MemoryError, tessera.Error) as error:
    print(type(error).__name__, error)
print((tessera.rms_norm(small, small[0]) == want).all())
"""


def test_out_of_memory_is_an_exception():
    done = run_script(WITHOUT_MEMORY)
    assert done.returncode == 0, done.stderr
    error, still_right = done.stdout.splitlines()
    assert "out of host memory" in error
    assert still_right == "True"


UNLOADED = """
import _ctypes
import ctypes
import os
import time
import numpy as np
import tessera

def is_loaded():
    return os.path.realpath(tessera.library_path) in open("/proc/self/maps").read()

small = np.ones((64, 300), "float32")
tessera.rms_norm(small, small[0])
handle = ctypes.CDLL(tessera.library_path)._handle
for _ in range(20):
    if is_loaded():
        _ctypes.dlclose(handle)
time.sleep(0.1)  # the threads run on meanwhile
print("loaded" if is_loaded() else "gone", flush=True)
os._exit(0)
"""


def test_the_library_stays_loaded_under_its_threads():
    done = run_script(UNLOADED)
    assert (done.returncode, done.stdout) == (0, "loaded\n"), done.stderr
