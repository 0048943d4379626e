# What a call costs beyond the work itself, on tensors too small for the work to matter.
# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from call_cost import gemm_cost, rms_norm_cost

AIM = 5.0  # us, on an idle machine
SLACK = 8  # a busy one must not fail the test; a tenfold slip still does


def report(name, cost):
    print(f"\n{name}: {cost}; the aim is {AIM} us")
    assert cost.whole < AIM * SLACK


def test_numpy_call_cost():
    x, weight, out = np.ones((1, 8), "f4"), np.ones(8, "f4"), np.empty((1, 8), "f4")
    report("NumPy, rms_norm(x, weight, out=out) of 1x8", rms_norm_cost(x, weight, out))
    b = np.ones((8, 8), "f4")
    report("NumPy, gemm(a, b, out=out) of 1x8x8", gemm_cost(x, b, out))


def test_pytorch_call_cost():
    torch = pytest.importorskip("torch")
    name = "PyTorch " + torch.__version__
    x, weight, out = torch.ones(1, 8), torch.ones(8), torch.empty(1, 8)
    report(f"{name}, rms_norm(x, weight, out=out) of 1x8", rms_norm_cost(x, weight, out))
    report(f"{name}, gemm(a, b, out=out) of 1x8x8", gemm_cost(x, torch.ones(8, 8), out))
