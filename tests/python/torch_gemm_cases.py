# The matrix products against their PyTorch expressions in float64; torch_cases.py lists them.
# SPDX-License-Identifier: MIT
"""Bounds are those of the headers: k 2^-22 of the sum of magnitudes for the product, 2^-22 for each
later line, and for an activation 2^-14 on 16-bit operands, or 1e-6 in float32."""

import tessera
import torch
import torch.nn.functional as F
from torch_check import FP8, assert_close, assert_same, normal, rounding

# One token, parts of tiles, sizes no vector load takes, several tiles, and nothing to do.
SIZES = [(1, 64, 128), (5, 24, 7), (17, 72, 128), (33, 100, 1000), (130, 264, 512)]
SIZES += [(300, 512, 64), (0, 64, 64), (4, 24, 0)]
ACTIVATIONS = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
STEEPEST = 1.13  # the largest slope of an activation
LINE = 2.0**-22


def integers(shape, device, dtype, most, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).to(device, dtype)


def factors(m, n, k, device, dtype):
    return normal((m, k), device, dtype), weight(n, k, device, dtype)


def weight(n, k, device, dtype, seed=1):
    return (normal((n, k), device, torch.float32, seed) * max(k, 1) ** -0.5).to(dtype)


def gemm_of(a, b, bias=None, activation=None, is_gated=False, residual=None, factor_error=0.0):
    """The product with its epilogue, and the error it may have before the last rounding."""
    relative = 0.0 if a.dtype == torch.float32 else 2.0**-14
    wide_a, wide_b = a.double(), b.double().transpose(-1, -2)
    want = wide_a @ wide_b
    error = (a.shape[-1] * LINE + factor_error) * (wide_a.abs() @ wide_b.abs())
    if bias is not None:
        want = want + bias.double()
        error = error + LINE * want.abs()
    if is_gated:
        (want, up), (error, up_error) = (
            [x.unflatten(-1, (-1, 2, 8))[..., half, :].flatten(-2) for half in (0, 1)]
            for x in (want, error)
        )
    if activation is not None:
        want = ACTIVATIONS[activation](want)
        error = STEEPEST * error + relative * want.abs() + 1e-6
    if is_gated:
        error = up.abs() * error + want.abs() * up_error + error * up_error
        want = want * up
    if residual is not None:
        want = want + residual.double()
    return want, error + LINE * want.abs()


def check(a, b, what, dtype=None, **how):
    """gemm with an out of its own, and into the rows of a wider one."""
    kind = dtype or a.dtype
    want, error = gemm_of(a, b, **how)
    bound = error + rounding(want, kind)
    got = tessera.gemm(a, b, dtype=dtype, **how)
    assert got.dtype == kind
    assert_close(got, want, bound, what)
    spread = torch.full((*want.shape[:-1], want.shape[-1] + 8), 7, dtype=kind, device=a.device)
    view = spread[..., :-8]
    assert tessera.gemm(a, b, out=view, is_b_static=True, **how) is view
    assert_close(view, want, bound, f"{what} into a view")
    assert (spread[..., -8:] == 7).all(), f"{what}: wrote beside out"


def case_gemm_of_integers(device, dtype):
    """Every sum is exact in float, so the result is the nearest of its type."""
    for m, n, k in SIZES:
        a, b = integers((m, k), device, dtype, 2), integers((n, k), device, dtype, 1, 1)
        want = (a.double() @ b.double().T).to(dtype)
        assert_same(tessera.gemm(a, b), want, f"gemm {m} {n} {k}")
        with tessera.using(batch_invariant=True):
            assert_same(tessera.gemm(a, b), want, f"invariant gemm {m} {n} {k}")


def case_gemm(device, dtype):
    for m, n, k in SIZES:
        check(*factors(m, n, k, device, dtype), f"gemm {m} {n} {k}")
    a, b = factors(40, 96, 200, device, dtype)
    check(a, b, "float32 out", dtype=torch.float32)
    both = normal((40, 2 * 128), device, dtype)
    check(both[:, 128:], weight(72, 128, device, dtype), "rows apart")


def case_gemm_epilogues(device, dtype):
    for m in (3, 150):
        a, b = factors(m, 144, 128, device, dtype)
        bias, residual = normal((144,), device, dtype, 2), normal((m, 144), device, dtype, 3)
        check(a, b, f"bias {m}", bias=bias)
        check(a, b, f"residual {m}", residual=residual)
        check(a, b, f"all {m}", bias=bias, activation="gelu_tanh", residual=residual)
        for name in ACTIVATIONS:
            check(a, b, f"{name} {m}", activation=name)
            check(a, b, f"{name} with bias {m}", activation=name, bias=bias)
        want, error = gemm_of(a, b, residual=residual)
        assert tessera.gemm(a, b, residual=residual, out=residual) is residual
        assert_close(residual, want, error + rounding(want, dtype), f"residual in place {m}")


def case_gated_gemm(device, dtype):
    inter, k = 72, 128
    gate, up = weight(inter, k, device, dtype), weight(inter, k, device, dtype, 4)
    b = tessera.pack_gate_up(gate, up)
    eights = [w.unflatten(0, (-1, 8)) for w in (gate, up)]
    assert_same(b, torch.stack(eights, 1).flatten(0, 2), "pack_gate_up")
    bias = normal((2 * inter,), device, dtype, 2)
    for m in (3, 150):
        a, residual = normal((m, k), device, dtype), normal((m, inter), device, dtype, 3)
        for name in ACTIVATIONS:
            check(a, b, f"gated {name} {m}", activation=name, is_gated=True)
        how = {"activation": "silu", "is_gated": True, "bias": bias, "residual": residual}
        check(a, b, f"gated all {m}", **how)


def case_batched_gemm(device, dtype):
    for m, n, k in ((1, 64, 128), (17, 72, 64), (5, 24, 7)):
        a = normal((3, m, k), device, dtype)
        check(a, weight(n, k, device, dtype), f"shared b {m}")
        b = weight(3 * n, k, device, dtype).unflatten(0, (3, n))
        residual = normal((3, m, n), device, dtype, 3)
        check(a, b, f"batch {m}", bias=normal((n,), device, dtype, 2), residual=residual)


def case_tf32_gemm(device, dtype):
    """A factor rounded to 11 bits errs by at most 2^-10; other types ignore allow_tf32."""
    a, b = factors(70, 96, 200, device, dtype)
    want, error = gemm_of(a, b, factor_error=2.0**-9 if dtype == torch.float32 else 0.0)
    got = tessera.gemm(a, b, allow_tf32=True)
    assert_close(got, want, error + rounding(want, dtype), "tf32")


def case_gemm_to_codes(device, dtype):
    if device != "cpu" and dtype == torch.float32:
        return  # no kernel quantises the product of float32
    kinds = ["int8"] + (["float8_e4m3fn"] if FP8 else [])
    scale = torch.full((1,), 0.02, device=device)
    for m in (3, 150):
        a, b = factors(m, 96, 128, device, dtype)
        want, error = gemm_of(a, b, activation="silu")
        for kind in kinds:
            got = tessera.gemm(a, b, activation="silu", dtype=kind, out_scale=scale)
            assert got.dtype == getattr(torch, kind)
            largest = 127.0 if kind == "int8" else 448.0
            codes = got.double() if kind == "int8" else got.float().double()
            step = 0.5 if kind == "int8" else 2.0**-4 * codes.abs() + 2.0**-10
            clipped = (want / scale.double()).clamp(-largest, largest)
            # 0.1 % of a step for the float error, which may tip a tie.
            assert_close(codes, clipped, 1.001 * step + error / scale.double(), f"{kind} {m}")


def case_sparse_gemm(device, dtype):
    if dtype == torch.float32:
        return  # 2:4 weights have 16 bits
    for m, n, k in ((1, 64, 128), (17, 33, 160), (130, 264, 416), (0, 32, 32)):
        w = weight(n, k, "cpu", dtype)
        values, meta = tessera.prune_2_4(w)
        fours = w.float().abs().unflatten(1, (-1, 4))
        rank = fours.sort(stable=True, dim=-1, descending=True)[1].argsort(-1)
        kept = torch.where(rank.flatten(1) < 2, w, torch.zeros_like(w))
        assert_same(tessera.expand_2_4(values, meta), kept, f"expand_2_4 {n} {k}")
        a, values, meta = normal((m, k), device, dtype), values.to(device), meta.to(device)
        want, error = gemm_of(a, kept.to(device))
        got = tessera.gemm_2_4(a, values, meta)
        assert_close(got, want, error + rounding(want, dtype), f"gemm_2_4 {m} {n} {k}")
