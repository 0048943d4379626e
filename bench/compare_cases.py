# What compare.py times: each operation through Tessera and as PyTorch would write it.
# SPDX-License-Identifier: MIT
"""A case makes input sets and holds two functions over one: `ours` writes into buffers of the set,
`peer` is the plain PyTorch expression, which is also what torch.compile gets. Both return what is
compared; `reference` is the peer in float64."""

from dataclasses import dataclass, field
from typing import Callable

import tessera
import torch
import torch.nn.functional as F

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
QMAX = {"i8": 127.0, "e4m3": 448.0, "e5m2": 57344.0}
# Largest relative error, in norm, of the result against float64: a rounding to the type is a third
# of it or less.
BOUNDS = {"f32": 1e-5, "f16": 1e-3, "bf16": 6e-3, "e4m3": 6e-2, "e5m2": 1.2e-1, "i8": 2e-2}


@dataclass
class Case:
    make: Callable  # () -> dict of tensors: one input set, output buffers included
    ours: Callable  # set -> result or tuple of results, in float or integers
    peer: Callable  # *inputs -> the same
    inputs: tuple = ()  # names of the set's tensors that peer takes
    bound: float = 0.0
    decode: Callable = field(default=lambda *results: results)  # results -> what is compared
    per_row: tuple = ()  # inputs with the rows of the results: then some rows are checked


def normal(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape, device="cuda", dtype=torch.float32) * scale).to(dtype)


def quantized(y, out):
    """Symmetric, one scale for the last axis."""
    scale = y.float().abs().amax(-1, keepdim=True) / QMAX[out]
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    q = y.float() / scale
    if out == "i8":
        return q.round().clamp(-127, 127).to(torch.int8), scale
    return q.to(DTYPES[out]), scale


def decode_quantized(q, scale):
    return (q.double() * scale.double().reshape(*q.shape[:-1], -1),)


def norm(op, shape, key):
    rows, hidden = shape["rows"], shape["hidden"]
    dtype, out = DTYPES[key[0]], key[1]
    has_residual, has_bias = bool(shape.get("residual")), bool(shape.get("bias"))
    is_quantized = out in QMAX

    def make():
        made = {"x": normal(rows, hidden, dtype=dtype), "w": 1 + normal(hidden, scale=0.1)}
        made["w"] = made["w"].to(dtype)
        made["out"] = torch.empty(rows, hidden, device="cuda", dtype=DTYPES[out])
        made["r"] = normal(rows, hidden, dtype=dtype) if has_residual else None
        made["b"] = normal(hidden, dtype=dtype) if has_bias else None
        made["s"] = torch.empty(rows, device="cuda") if is_quantized else None
        return made

    def ours(s):
        named = {"residual": s["r"], "out": s["out"], "token_scale": s["s"]}
        if is_quantized:
            named["dtype"] = DTYPES[out]
        if op == "layer_norm":
            result = tessera.layer_norm(s["x"], s["w"], s["b"], 1e-5, **named)
        else:
            result = tessera.rms_norm(s["x"], s["w"], 1e-5, **named)
        results = result if isinstance(result, tuple) else (result,)
        return results + ((s["r"],) if has_residual else ())

    def peer(x, w, r, b):
        h = x if r is None else x + r
        if op == "layer_norm":
            y = F.layer_norm(h, (hidden,), w, b, 1e-5)
        else:
            y = F.rms_norm(h, (hidden,), w, 1e-5)
        results = quantized(y, out) if is_quantized else (y,)
        return results + ((h,) if r is not None else ())

    def decode(*results):
        if not is_quantized:
            return results
        return decode_quantized(*results[:2]) + results[2:]

    return Case(make, ours, peer, ("x", "w", "r", "b"), BOUNDS[out], decode)


def activation(op, shape, key):
    rows, cols, kind = shape["rows"], shape["cols"], shape.get("kind", 1)
    dtype, has_up = DTYPES[key[0]], bool(shape.get("up"))
    names = ("relu", "silu", "gelu", "gelu_tanh")

    def make():
        made = {"x": normal(rows, cols, dtype=dtype), "out": None}
        made["up"] = normal(rows, cols, dtype=dtype) if has_up else None
        made["out"] = torch.empty_like(made["x"])
        return made

    def ours(s):
        named = {"approximate": "tanh"} if names[kind] == "gelu_tanh" else {}
        base = names[kind].split("_")[0]
        if has_up:
            return (getattr(tessera, base + "_mul")(s["x"], s["up"], out=s["out"], **named),)
        return (getattr(tessera, base)(s["x"], out=s["out"], **named),)

    def peer(x, up):
        y = (F.relu, F.silu, F.gelu, lambda t: F.gelu(t, approximate="tanh"))[kind](x)
        return (y if up is None else y * up,)

    return Case(make, ours, peer, ("x", "up"), BOUNDS[key[0]])


def rope(op, shape, key):
    tokens, heads, kv_heads = shape["tokens"], shape["heads"], shape["kv_heads"]
    head_dim, dtype = shape["head_dim"], DTYPES[key[0]]
    positions, is_interleaved = shape.get("positions", 64), bool(shape.get("interleaved"))
    style = "interleaved" if is_interleaved else "half_split"
    table = torch.from_numpy(tessera.make_rope_table(positions, head_dim, 500000.0)).cuda()

    def make():
        return {
            "q": normal(tokens, heads, head_dim, dtype=dtype),
            "k": normal(tokens, kv_heads, head_dim, dtype=dtype),
            "p": torch.randint(0, positions, (tokens,), device="cuda", dtype=torch.int32),
            "table": table,
        }

    def rotate(t, cos, sin):
        if is_interleaved:
            a, b = t[..., 0::2], t[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        a, b = t.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def peer(q, k, p, table):
        cos, sin = table[p].to(q.dtype).unsqueeze(1).chunk(2, -1)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    def ours(s):
        return tessera.rope(s["q"], s["k"], s["p"], s["table"], style=style)

    return Case(make, ours, peer, ("q", "k", "p", "table"), BOUNDS[key[0]])


def softmax(op, shape, key):
    rows, cols, dtype = shape["rows"], shape["cols"], DTYPES[key[0]]
    mask_kind, mask_rows = shape.get("mask", 0), shape.get("mask_rows", 1)
    scale = 0.088388 if shape.get("scaled") else 1.0

    def make():
        made = {"x": normal(rows, cols, dtype=dtype), "mask": None}
        if mask_kind:
            visible = torch.rand(mask_rows, cols, device="cuda") < 0.75
            added = torch.zeros(mask_rows, cols, device="cuda").masked_fill(~visible, -torch.inf)
            made["mask"] = visible if mask_kind == 1 else added
        made["out"] = torch.empty_like(made["x"])
        return made

    def ours(s):
        mask = s["mask"]
        mask = mask.view(torch.uint8) if mask is not None and mask.dtype == torch.bool else mask
        return (tessera.softmax(s["x"], scale=scale, mask=mask, out=s["out"]),)

    def peer(x, mask):
        y = x * scale if scale != 1.0 else x
        if mask is not None:
            y = y.view(-1, mask_rows, cols)
            y = y.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else y + mask
        return (torch.softmax(y, -1).to(x.dtype).view(rows, cols),)

    return Case(make, ours, peer, ("x", "mask"), BOUNDS[key[0]])


def embedding(op, shape, key):
    table = normal(shape["vocab"], shape["hidden"], dtype=DTYPES[key[0]])

    def make():
        ids = torch.randint(0, shape["vocab"], (shape["tokens"],), device="cuda")
        out = torch.empty(shape["tokens"], shape["hidden"], device="cuda", dtype=table.dtype)
        return {"table": table, "ids": ids.to(torch.int32), "out": out}

    def ours(s):
        return (tessera.embedding(s["table"], s["ids"], out=s["out"]),)

    return Case(make, ours, lambda table, ids: (F.embedding(ids, table),), ("table", "ids"))


def copy(op, shape, key):
    sizes = [shape[f"d{i}"] for i in range(4) if f"d{i}" in shape]
    order = [int(digit) - 1 for digit in str(shape.get("order", 0))]
    order = order if shape.get("order") else list(range(len(sizes)))
    pad = shape.get("pad", 0)

    def make():
        stored = normal(*sizes[:-1], sizes[-1] + pad, dtype=DTYPES[key[0]])
        x = stored[..., : sizes[-1]].permute(order)
        return {"x": x, "out": torch.empty(x.shape, device="cuda", dtype=x.dtype)}

    def ours(s):
        return (tessera.copy(s["x"], out=s["out"]),)

    return Case(make, ours, lambda x: (x.clone(memory_format=torch.contiguous_format),), ("x",))


def quantize(op, shape, key):
    if key[1] not in QMAX or shape.get("zero"):
        return None  # PyTorch has no plain expression for packed codes or zero points
    rows, cols, out = shape["rows"], shape["cols"], key[1]
    group = shape["group"] if shape["per"] == 3 else cols
    per = group if shape["per"] == 3 else "token"

    def make():
        return {
            "x": normal(rows, cols, dtype=DTYPES[key[0]]),
            "out": torch.empty(rows, cols, device="cuda", dtype=DTYPES[out]),
            "s": torch.empty(rows, cols // group, device="cuda"),
        }

    def ours(s):
        return tessera.quantize(s["x"], DTYPES[out], per=per, out=(s["out"], s["s"]))

    def peer(x):
        q, scale = quantized(x.view(rows, cols // group, group), out)
        return q.view(rows, cols), scale.view(rows, cols // group)

    def decode(q, scale):
        grouped = q.double().view(rows, cols // group, group)
        return (grouped * scale.double().reshape(rows, cols // group, 1),)

    return Case(make, ours, peer, ("x",), BOUNDS[out], decode)


def dequantize(op, shape, key):
    if key[0] not in QMAX or shape.get("zero"):
        return None
    rows, cols = shape["rows"], shape["cols"]
    group = shape["group"] if shape["per"] == 3 else cols
    dtype = DTYPES[key[1]]

    def make():
        q = torch.randint(-16, 16, (rows, cols), device="cuda").to(DTYPES[key[0]])
        scale = torch.rand(rows, cols // group, device="cuda") + 0.5
        return {"q": q, "s": scale, "out": torch.empty(rows, cols, device="cuda", dtype=dtype)}

    def ours(s):
        return (tessera.dequantize(s["q"], s["s"], out=s["out"]),)

    def peer(q, s):
        grouped = q.view(rows, cols // group, group).float() * s.unsqueeze(-1)
        return (grouped.to(dtype).view(rows, cols),)

    return Case(make, ours, peer, ("q", "s"), BOUNDS[key[1]])


def reduce(op, shape, key):
    rows, cols, dtype = shape["rows"], shape["cols"], DTYPES[key[0]]
    kind = ("sum", "mean", "max", "min", "absmax")[shape.get("kind", 0)]

    def make():
        return {"x": normal(rows, cols, dtype=dtype), "out": torch.empty(rows, device="cuda")}

    def peer(x):
        if kind in ("sum", "mean"):
            wide = torch.float64 if x.dtype == torch.float64 else torch.float32
            return (getattr(torch, kind)(x, -1, dtype=wide),)
        if kind == "absmax":
            return (x.abs().amax(-1),)
        return ((torch.amax if kind == "max" else torch.amin)(x, -1),)

    return Case(make, lambda s: (tessera.reduce(s["x"], kind, out=s["out"]),), peer, ("x",), 1e-4)


def argmax(op, shape, key):
    def make():
        x = normal(shape["rows"], shape["cols"], dtype=DTYPES[key[0]])
        return {"x": x, "out": torch.empty(shape["rows"], device="cuda", dtype=torch.int64)}

    # Equal values are common in bf16, so the value found is compared, not its index.
    def ours(s):
        return (tessera.argmax(s["x"], out=s["out"]),)

    return Case(make, ours, lambda x: (torch.argmax(x, -1),), ("x",))


CASES = {
    "rms_norm": norm,
    "layer_norm": norm,
    "activation": activation,
    "rope": rope,
    "softmax": softmax,
    "embedding": embedding,
    "copy": copy,
    "quantize": quantize,
    "dequantize": dequantize,
    "reduce": reduce,
    "argmax": argmax,
}
