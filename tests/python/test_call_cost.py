# What a call costs beyond the work itself, on tensors too small for the work to matter.
# SPDX-License-Identifier: MIT
import time

import numpy as np
import pytest
import tessera
from tessera import _dlpack
from tessera._library import lib

AIM = 5.0  # us, on an idle machine
SLACK = 8  # a busy one must not fail the test; a tenfold slip still does


def microseconds(call):
    best = float("inf")
    for _ in range(300):
        start = time.perf_counter()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter() - start) / 100 * 1e6)
    return best


def report(name, x, weight, out):
    whole = microseconds(lambda: tessera.rms_norm(x, weight, out=out))
    keep = []
    framework = _dlpack.framework_of(x)
    pointers = framework.borrow_all((x, weight, out), keep)
    inside = microseconds(lambda: lib.rms_norm(*pointers, None, None, None, 1e-5, 0, None))
    print(
        f"\n{name}: rms_norm(x, weight, out=out) of 1x8 takes {whole:.2f} us, "
        f"of which {inside:.2f} us in the C call; the aim is {AIM} us"
    )
    assert whole < AIM * SLACK


def test_numpy_call_cost():
    report("NumPy", np.ones((1, 8), "f4"), np.ones(8, "f4"), np.empty((1, 8), "f4"))


def test_pytorch_call_cost():
    torch = pytest.importorskip("torch")
    report("PyTorch " + torch.__version__, torch.ones(1, 8), torch.ones(8), torch.empty(1, 8))
