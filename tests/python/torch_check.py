# What the PyTorch cases share: data, dtypes, and comparisons that show the worst element.
# SPDX-License-Identifier: MIT
import math

import torch

FLOAT = 2.0**-24
ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
SMALLEST = {torch.float32: 2.0**-126, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-126}
DTYPES = list(ULP)
SHAPES = [(1, 8), (5, 100), (33, 4096), (3, 2, 1000), (4, 8192), (0, 64)]
FP8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]


def normal(shape, device, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device=device, dtype=dtype)


def assert_close(got, want, bound, what=""):
    assert got.device.type == want.device.type
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, want {tuple(want.shape)}"
    if got.numel() == 0:
        return
    bound = torch.as_tensor(bound, dtype=torch.float64, device=want.device).expand(want.shape)
    got = got.double()
    excess = (got - want).abs() - bound
    excess = torch.where(torch.isnan(excess), torch.full_like(excess, math.inf), excess)
    worst = int(excess.flatten().argmax())
    assert excess.flatten()[worst] <= 0, (
        f"{what}: element {worst} of {tuple(want.shape)} is {float(got.flatten()[worst])!r}, "
        f"want {float(want.flatten()[worst])!r} within {float(bound.flatten()[worst]):.3g}"
    )


def assert_same(got, want, what=""):
    assert got.dtype == want.dtype and got.shape == want.shape, what
    assert torch.equal(got, want), f"{what}: {int((got != want).sum())} elements differ"


def rounding(want, dtype):
    return 2 * ULP[dtype] * want.abs() + SMALLEST[dtype]
