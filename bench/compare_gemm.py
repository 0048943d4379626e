# The matrix products of compare.py: through Tessera, and as PyTorch would write them over cuBLAS.
# SPDX-License-Identifier: MIT
"""Sizes and options are those of bench/problems/gemm.cpp and sparse.cpp. Each side has weights in
its own layout: PyTorch's gate and up are stacked, ours are interleaved by pack_gate_up."""

import tessera
import torch
import torch.nn.functional as F
from compare_cases import BOUNDS, DTYPES, QMAX, Case, normal

KINDS = (None, "relu", "silu", "gelu", "gelu_tanh")  # by the option `activation`
FUNCTIONS = (None, F.relu, F.silu, F.gelu, lambda t: F.gelu(t, approximate="tanh"))
OPTIONS = {"m", "n", "k", "bias", "activation", "gated", "residual", "tf32", "static_b"}
OUT_SCALE = 0.03  # of codes
TF32_BOUND = 2e-3  # factors of 11 bits, rounded or cut


def weight(n, k, dtype):
    return normal(n, k, dtype=dtype, scale=max(k, 1) ** -0.5)


def to_codes(y, out):
    q = y.float() / OUT_SCALE
    if out == "i8":
        return q.round().clamp(-127, 127).to(torch.int8)
    return q.clamp(-QMAX[out], QMAX[out]).to(DTYPES[out])


def gemm(op, shape, key):
    m, n, k = shape["m"], shape["n"], shape["k"]
    dtype, out = DTYPES[key[0]], key[1]
    kind, is_gated = shape.get("activation", 0), bool(shape.get("gated"))
    has_bias, has_residual = bool(shape.get("bias")), bool(shape.get("residual"))
    is_tf32, has_codes = bool(shape.get("tf32")), out in QMAX
    if set(shape) - OPTIONS or (has_bias and is_gated):
        return None  # options of tests, which no workload has
    num_cols = n // 2 if is_gated else n
    torch.backends.cuda.matmul.allow_tf32 = is_tf32  # of the peer, while this case is timed
    named = {
        "activation": KINDS[kind],
        "is_gated": is_gated,
        "allow_tf32": is_tf32,
        "is_b_static": bool(shape.get("static_b")),
        "dtype": DTYPES[out],
    }

    def make():
        made = {"a": normal(m, k, dtype=dtype), "w": weight(n, k, dtype)}
        if is_gated:
            made["packed"] = tessera.pack_gate_up(made["w"][:num_cols], made["w"][num_cols:])
        made["bias"] = normal(n, dtype=dtype) if has_bias else None
        made["r"] = normal(m, num_cols, dtype=dtype) if has_residual else None
        made["scale"] = torch.full((1,), OUT_SCALE, device="cuda") if has_codes else None
        made["out"] = torch.empty(m, num_cols, device="cuda", dtype=DTYPES[out])
        return made

    def ours(s):
        b = s["packed"] if is_gated else s["w"]
        tensors = {"bias": s["bias"], "residual": s["r"], "out_scale": s["scale"], "out": s["out"]}
        return (tessera.gemm(s["a"], b, **tensors, **named),)

    def peer(a, w, bias, r):
        y = F.linear(a, w, bias)
        if is_gated:
            gate, up = y.chunk(2, -1)
            y = FUNCTIONS[kind](gate) * up
        elif kind:
            y = FUNCTIONS[kind](y)
        if r is not None:
            y = y + r
        if has_codes:
            return (to_codes(y, out),)
        return (y if y.dtype == torch.float64 else y.to(DTYPES[out]),)

    def decode(y):
        return (y.float().double() * OUT_SCALE if has_codes else y,)

    bound = TF32_BOUND if is_tf32 else BOUNDS[out]
    return Case(make, ours, peer, ("a", "w", "bias", "r"), bound, decode, per_row=("a", "r"))


def gemm_2_4(op, shape, key):
    """The peer is the dense product with the same weight, zeros included."""
    m, n, k, dtype = shape["m"], shape["n"], shape["k"], DTYPES[key[0]]
    if set(shape) - {"m", "n", "k"}:
        return None
    values, meta = tessera.prune_2_4(weight(n, k, dtype).cpu())
    kept = tessera.expand_2_4(values, meta)

    def make():
        made = {"a": normal(m, k, dtype=dtype), "w": kept.cuda()}
        made.update(values=values.cuda(), meta=meta.cuda())
        made["out"] = torch.empty(m, n, device="cuda", dtype=dtype)
        return made

    def ours(s):
        return (tessera.gemm_2_4(s["a"], s["values"], s["meta"], out=s["out"]),)

    def peer(a, w):
        return (F.linear(a, w),)

    return Case(make, ours, peer, ("a", "w"), BOUNDS[key[1]], per_row=("a",))


CASES = {"gemm": gemm, "gemm_2_4": gemm_2_4}
