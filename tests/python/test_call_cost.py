# What a call costs beyond the work itself, on tensors too small for the work to matter.
# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from call_cost import breakdown

AIM = 5.0  # us, on an idle machine
SLACK = 8  # a busy one must not fail the test; a tenfold slip still does


def report(name, x, weight, out):
    cost = breakdown(x, weight, out)
    print(f"\n{name}: rms_norm(x, weight, out=out) of 1x8: {cost}; the aim is {AIM} us")
    assert cost.whole < AIM * SLACK


def test_numpy_call_cost():
    report("NumPy", np.ones((1, 8), "f4"), np.ones(8, "f4"), np.empty((1, 8), "f4"))


def test_pytorch_call_cost():
    torch = pytest.importorskip("torch")
    report("PyTorch " + torch.__version__, torch.ones(1, 8), torch.ones(8), torch.empty(1, 8))
