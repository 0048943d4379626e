# Every operation against its PyTorch expression in float64, for whichever device a test names.
# SPDX-License-Identifier: MIT
"""Each `case_*` takes a device and a dtype and asserts. test_torch.py runs them on the CPU,
test_torch_cuda.py on a GPU. Bounds are derived as in numpy_reference.py."""

import math

import tessera
import torch
import torch.nn.functional as F
import torch_attention_cases
import torch_cascade_cases
import torch_gemm_cases
import torch_kv_cases
from torch_check import DTYPES, FLOAT, FP8, SHAPES, ULP, assert_close, assert_same, normal, rounding


def rms_norm_of(h, weight, eps):
    h = h.double()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps) * weight.double()


def rms_norm_bound(want, hidden, dtype):
    return rounding(want, dtype) + hidden * FLOAT * want.abs()


def layer_norm_bound(h, weight, bias, want, dtype):
    h = h.double()
    mean = h.abs().mean(-1, keepdim=True)
    variance = (h - h.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
    scale = torch.rsqrt(variance + 1e-5)
    size = (h.abs() + mean) * scale * weight.double().abs()
    shift = 0 if bias is None else bias.double().abs()
    return rounding(want, dtype) + (h.shape[-1] + 8) * FLOAT * size + 2 * FLOAT * shift


def case_rms_norm(device, dtype):
    for shape in SHAPES:
        x, weight = normal(shape, device, dtype), normal(shape[-1:], device, dtype, 1)
        want = rms_norm_of(x, weight, 1e-5)
        bound = rms_norm_bound(want, shape[-1], dtype)
        assert_close(tessera.rms_norm(x, weight), want, bound, f"rms_norm {shape}")
        assert tessera.rms_norm(x, weight, out=x) is x
        assert_close(x, want, bound, f"rms_norm in place {shape}")


def case_add_rms_norm(device, dtype):
    for shape in SHAPES:
        x, residual = normal(shape, device, dtype), normal(shape, device, dtype, 2)
        weight = normal(shape[-1:], device, dtype, 1)
        stored = (x.float() + residual.float()).to(dtype)
        want = rms_norm_of(stored, weight, 1e-5)
        got = tessera.rms_norm(x, weight, residual=residual)
        assert_same(residual, stored, "residual")
        assert_close(got, want, rms_norm_bound(want, shape[-1], dtype), f"add_rms_norm {shape}")


def case_layer_norm(device, dtype):
    for shape in SHAPES:
        x, weight = normal(shape, device, dtype), normal(shape[-1:], device, dtype, 1)
        for bias in (normal(shape[-1:], device, dtype, 2), None):
            wide_bias = None if bias is None else bias.double()
            want = F.layer_norm(x.double(), shape[-1:], weight.double(), wide_bias, 1e-5)
            bound = layer_norm_bound(x, weight, bias, want, dtype)
            assert_close(tessera.layer_norm(x, weight, bias), want, bound, f"layer_norm {shape}")


def case_add_layer_norm(device, dtype):
    shape = (9, 1000)
    x, residual = normal(shape, device, dtype), normal(shape, device, dtype, 2)
    weight, bias = normal((1000,), device, dtype, 1), normal((1000,), device, dtype, 3)
    stored = (x.float() + residual.float()).to(dtype)
    want = F.layer_norm(stored.double(), (1000,), weight.double(), bias.double(), 1e-5)
    got = tessera.layer_norm(x, weight, bias, residual=residual)
    assert_same(residual, stored, "residual")
    assert_close(got, want, layer_norm_bound(stored, weight, bias, want, dtype), "add_layer_norm")


def _codes_and_step(q, kind):
    """The values that codes stand for, and the rounding error of a code."""
    if kind == "int8":
        return q.double(), 0.5
    values = q.float().double()
    return values, 2.0**-4 * values.abs() + 2.0**-10


def case_quantised_norms(device, dtype):
    """y is float32 before it is quantised, so a tie may tip: 0.1 % of a step, and of the value."""
    kinds = ["int8"] + (["float8_e4m3fn"] if FP8 else [])
    x, weight = normal((17, 1000), device, dtype), normal((1000,), device, dtype, 1)
    bias = normal((1000,), device, dtype, 2)
    norms = {
        "rms_norm": (
            lambda **how: tessera.rms_norm(x, weight, **how),
            rms_norm_of(x, weight, 1e-5),
        ),
        "layer_norm": (
            lambda **how: tessera.layer_norm(x, weight, bias, **how),
            F.layer_norm(x.double(), (1000,), weight.double(), bias.double(), 1e-5),
        ),
    }
    for kind in kinds:
        largest = 127.0 if kind == "int8" else 448.0
        for name, (norm, want) in norms.items():
            q, scale = norm(dtype=kind)
            assert q.dtype == getattr(torch, kind)
            assert_close(scale, want.abs().amax(-1) / largest, 1e-4 * scale.double(), "scale")
            codes, step = _codes_and_step(q, kind)
            wide = scale.double()[:, None]
            bound = wide * (step + 1e-3 * codes.abs().clamp(min=1))
            assert_close(codes * wide, want, bound, f"{name} per token {kind}")
            fixed = torch.full((1,), 0.02, device=device)
            q = norm(dtype=kind, static_scale=fixed)
            codes, step = _codes_and_step(q, kind)
            clipped = (want / fixed.double()).clamp(-largest, largest)
            assert_close(codes, clipped, step + 1e-3 * codes.abs().clamp(min=1), f"{name} static")


def rope_of(x, positions, table, style):
    half = table.shape[1] // 2
    cos = table.double()[positions.long(), None, :half]
    sin = table.double()[positions.long(), None, half:]
    y, size = x.double().clone(), x.double().abs()
    first = slice(0, half) if style == "half_split" else slice(0, 2 * half, 2)
    second = slice(half, 2 * half) if style == "half_split" else slice(1, 2 * half, 2)
    a, b = x.double()[..., first], x.double()[..., second]
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    size[..., first] = size[..., second] = a.abs() + b.abs()
    return y, size


def case_rope(device, dtype):
    for style in ("half_split", "interleaved"):
        for head_dim, rotary_dim, index in ((128, 128, torch.int64), (80, 32, torch.int32)):
            qkv = normal((19, 8 + 2, head_dim), device, dtype)
            q, k = qkv[:, :8], qkv[:, 8:]  # strided: the two parts of one projection
            positions = torch.arange(19, device=device, dtype=index).flip(0).contiguous() * 3
            table = tessera.make_rope_table(64, rotary_dim, 500000.0, like=q)
            wants = [rope_of(x, positions, table, style) for x in (q, k)]
            tessera.rope(q, k, positions, table, style=style)
            for x, (want, size) in zip((q, k), wants):
                bound = rounding(want, dtype) + 4 * FLOAT * size
                assert_close(x, want, bound, f"rope {style} {head_dim}")


def activation_bound(x, want, dtype, up=None):
    """As the header grants. 1 + erf(x) and 1 + tanh(x) cancel in PyTorch's float64 as well, by
    2^-52 of x; and where there is a second factor, it multiplies the absolute error in float32."""
    bound = rounding(want, dtype)
    absolute = 2.0**-52 * x.double().abs()
    if dtype == torch.float32:
        absolute = absolute.clamp(min=1e-6)
    return bound + (absolute if up is None else absolute * up.double().abs())


def case_activations(device, dtype):
    runs = {
        "relu": (tessera.relu, F.relu),
        "silu": (tessera.silu, F.silu),
        "gelu": (tessera.gelu, F.gelu),
        "gelu tanh": (
            lambda x: tessera.gelu(x, approximate="tanh"),
            lambda x: F.gelu(x, approximate="tanh"),
        ),
    }
    for shape in SHAPES:
        x = normal(shape, device, dtype) * 3
        for name, (run, expression) in runs.items():
            want = expression(x.double())
            assert_close(run(x), want, activation_bound(x, want, dtype), f"{name} {shape}")


def case_gated_activations(device, dtype):
    for inter in (64, 1000, 14336):
        both = normal((7, 2 * inter), device, dtype)
        gate, up = both[:, :inter], both[:, inter:]
        wide_gate, wide_up = gate.double(), up.double()
        want = F.silu(wide_gate) * wide_up
        bound = activation_bound(gate, want, dtype, up)
        assert_close(tessera.silu_mul(gate, up), want, bound, f"silu_mul {inter}")
        for how in ("none", "tanh"):
            want = F.gelu(wide_gate, approximate=how) * wide_up
            bound = activation_bound(gate, want, dtype, up)
            got = tessera.gelu_mul(gate, up, approximate=how)
            assert_close(got, want, bound, f"gelu_mul {how} {inter}")


def _softmax_bound(z, want, dtype):
    spread = z[torch.isfinite(z)].abs()
    largest = 2 * float(spread.max()) if spread.numel() else 0.0
    return rounding(want, dtype) + (4 * largest + z.shape[-1] + 16) * FLOAT * want


def case_softmax(device, dtype):
    for shape in SHAPES:
        x = normal(shape, device, dtype)
        z = 0.7 * x.double()
        want = F.softmax(z, dim=-1)
        got = tessera.softmax(x, scale=0.7)
        assert_close(got, want, _softmax_bound(z, want, dtype), f"softmax {shape}")


def case_masked_softmax(device, dtype):
    x = normal((2, 3, 16, 300), device, dtype)
    visible = torch.ones(16, 300, device=device).tril(100).bool()
    z = x.double().masked_fill(~visible, -math.inf)
    want = F.softmax(z, dim=-1)
    bound = _softmax_bound(z, want, dtype)
    assert_close(tessera.softmax(x, mask=visible), want, bound, "bool mask")
    assert_close(tessera.softmax(x, mask=visible.to(torch.uint8)), want, bound, "uint8 mask")
    added = normal((16, 300), device, torch.float32, 5).masked_fill(~visible, -math.inf)
    z = x.double() + added.double()
    want = F.softmax(z, dim=-1)
    bound = _softmax_bound(z, want, dtype)
    assert_close(tessera.softmax(x, mask=added), want, bound, "added mask")


def case_scale(device, dtype):
    for shape in SHAPES:
        x, residual = normal(shape, device, dtype), normal(shape, device, dtype, 1)
        y = 1.5 * torch.tanh(0.7 * x.double() / 1.5)
        want = y + residual.double()
        bound = rounding(want, dtype) + 2.0**-20 * y.abs()
        got = tessera.scale(x, 0.7, softcap=1.5, residual=residual)
        assert_close(got, want, bound, f"scale {shape}")
        tessera.scale(x, 0.7, softcap=1.5, residual=residual, out=residual)
        assert_same(residual, got, f"scale {shape} in place")


def case_embedding(device, dtype):
    table = normal((500, 1000), device, dtype)
    for index in (torch.int32, torch.int64):
        ids = torch.arange(0, 500, 7, device=device, dtype=index)
        assert_same(tessera.embedding(table, ids), F.embedding(ids.long(), table))


def case_copy(device, dtype):
    x = normal((6, 70, 90), device, dtype)
    for kind in (dtype, torch.int8, torch.uint8, torch.bool, torch.int32, torch.int64):
        y = (x * 50).to(kind)
        for view in (y, y[:, 1::2], y.permute(2, 0, 1), y[0].expand(4, 70, 90)):
            assert_same(tessera.copy(view), view.contiguous(), f"copy {kind}")
        assert_same(tessera.transpose(y), y.transpose(-1, -2).contiguous(), f"transpose {kind}")
        out = torch.empty(90, 70, 6, dtype=kind, device=device)
        tessera.copy(y, out=out.permute(2, 1, 0))
        assert_same(out, y.permute(2, 1, 0).contiguous(), f"strided out {kind}")


PER = ["tensor", "channel", "token", 128]


def _spread(scale, x):
    rows, cols = x.shape
    scale = scale.repeat_interleave(rows // scale.shape[0], 0)
    return scale.repeat_interleave(cols // scale.shape[1], 1)


def _absmax(x, per):
    size = x.float().abs()
    if per == "tensor":
        return size.amax().reshape(1, 1)
    if per == "channel":
        return size.amax(0, keepdim=True)
    if per == "token":
        return size.amax(1, keepdim=True)
    return size.reshape(len(x), -1, per).amax(-1)


def _integer_codes(x, scale, zero, low, high):
    """The rule of the header, in float32: x times the reciprocal of the scale, to nearest even."""
    codes = torch.round(x.float() * (1.0 / scale))
    return (codes if zero is None else codes + zero).clamp(low, high)


def case_quantize_integers(device, dtype):
    x = normal((12, 1024), device, dtype) + 0.5
    for per in PER:
        q, scale = tessera.quantize(x, "int8", per=per)
        assert_close(scale, _absmax(x, per).double() / 127, 2 * ULP[torch.float32] * scale, "scale")
        wide = _spread(scale, x)
        assert_same(q.float(), _integer_codes(x, wide, None, -127, 127), f"int8 {per}")
        for kind in DTYPES:
            want = q.double() * wide.double()
            got = tessera.dequantize(q, scale, dtype=kind)
            assert got.dtype == kind
            assert_close(got, want, rounding(want, kind), f"dequantize int8 {per}")
        q, scale, zero = tessera.quantize(x, "uint8", per=per)
        wide, wide_zero = _spread(scale, x), _spread(zero, x)
        assert_same(q.float(), _integer_codes(x, wide, wide_zero, 0, 255), f"uint8 {per}")
        want = (q.double() - wide_zero) * wide.double()
        got = tessera.dequantize(q, scale, zero)
        assert_close(got, want, rounding(want, torch.float32), f"dequantize uint8 {per}")


def case_quantize_int4(device, dtype):
    x = normal((12, 1024), device, dtype)
    for per in PER:
        for asymmetric in (False, True):
            q, scale, *rest = tessera.quantize(x, "int4", per=per, asymmetric=asymmetric)
            assert q.dtype == torch.uint8 and q.shape == (12, 512)
            codes = torch.stack([q & 15, q >> 4], -1).reshape(12, 1024).float()
            wide = _spread(scale, x)
            zero = _spread(rest[0], x) if asymmetric else None
            if not asymmetric:
                codes = torch.where(codes > 7, codes - 16, codes)
            low, high = (0, 15) if asymmetric else (-7, 7)
            want = _integer_codes(x, wide, zero, low, high)
            assert_same(codes, want, f"int4 {per} {asymmetric}")
            want = (codes.double() - (zero if asymmetric else 0)) * wide.double()
            got = tessera.dequantize(q, scale, *rest, format="int4", dtype=dtype)
            assert_close(got, want, rounding(want, dtype), f"dequantize int4 {per} {asymmetric}")


def case_quantize_fp8(device, dtype):
    x = normal((12, 1024), device, dtype)
    for kind in FP8:
        largest = torch.finfo(kind).max
        for per in PER:
            q, scale = tessera.quantize(x, kind, per=per)
            assert q.dtype == kind
            bound = 2 * ULP[torch.float32] * scale
            assert_close(scale, _absmax(x, per).double() / largest, bound, "scale")
            wide = _spread(scale, x)
            want = (x.float() * (1.0 / wide)).clamp(-largest, largest).to(kind)
            assert_same(q.view(torch.uint8), want.view(torch.uint8), f"{kind} {per}")
            want = q.float().double() * wide.double()
            got = tessera.dequantize(q, scale, dtype=dtype)
            assert_close(got, want, rounding(want, dtype), f"dequantize {kind} {per}")


def case_quantize_by_given_scales(device, dtype):
    x = normal((12, 1024), device, dtype)
    scale = torch.full((12, 1), 0.125, device=device)
    q, same = tessera.quantize(x, "int8", scale=scale)
    assert same is scale
    assert_same(q.float(), _integer_codes(x, scale, None, -127, 127), "fixed scale")


def case_reduce(device, dtype):
    for shape in SHAPES:
        x = normal(shape, device, dtype)
        wide = x.double()
        size = (shape[-1] + 2) * FLOAT * wide.abs().sum(-1)
        assert_close(tessera.reduce(x, "sum"), wide.sum(-1), size, f"sum {shape}")
        assert_close(tessera.reduce(x, "mean"), wide.mean(-1), size / shape[-1], f"mean {shape}")
        assert_same(tessera.reduce(x, "max"), x.float().amax(-1), f"max {shape}")
        assert_same(tessera.reduce(x, "min"), x.float().amin(-1), f"min {shape}")
        assert_same(tessera.reduce(x, "absmax"), x.float().abs().amax(-1), f"absmax {shape}")


def case_argmax(device, dtype):
    for shape in SHAPES:
        # Distinct values, because PyTorch does not say which of equals it picks.
        order = torch.rand(shape, generator=torch.Generator().manual_seed(6)).argsort(-1)
        x = (order[..., : min(shape[-1], 256)].argsort(-1).to(dtype)).to(device)
        assert_same(tessera.argmax(x), x.argmax(-1), f"argmax {shape}")
        assert_same(tessera.argmax(x, dtype="int32"), x.argmax(-1).int(), f"argmax {shape}")


_named = {**globals(), **vars(torch_gemm_cases), **vars(torch_attention_cases)}
_named.update({**vars(torch_kv_cases), **vars(torch_cascade_cases)})
CASES = {name[5:]: case for name, case in _named.items() if name.startswith("case_")}
