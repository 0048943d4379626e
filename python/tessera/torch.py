# The operations as torch.ops.tessera, with shapes known to torch.compile; imported on request.
# SPDX-License-Identifier: MIT
"""`import tessera.torch`, then torch.ops.tessera.rms_norm(x, weight, 1e-5) and its siblings.

Each operation has a schema, an implementation for every device Tessera serves, and a fake one that
gives shapes and dtypes only, so that torch.compile and torch.export can pass through. They record
no gradients. Formats are strings: "int8", "int4", "uint8", "float8_e4m3fn", "float8_e5m2".
"""

import torch

import tessera as _tessera
import tessera._dtypes
import tessera._gemm
import tessera._quantize

from ._torch_attention import (  # noqa: F401  (offered here like the rest)
    attention_cascade,
    attention_cascade_lse,
    attention_decode,
    attention_decode_lse,
    attention_merge,
    attention_merge_lse,
    attention_prefill,
    attention_prefill_lse,
    kv_append,
    kv_append_rope,
    kv_copy_pages,
    kv_gather,
)
from ._torch_register import register, storage


def _like(x, *_args, **_kwargs):
    return x.new_empty(x.shape)


def _quantized_rows(x, weight, dtype, eps=1e-5):
    q = x.new_empty(x.shape, dtype=storage(dtype))
    return q, x.new_empty(x.shape[:-1], dtype=torch.float32)


rms_norm = register(
    "rms_norm",
    "(Tensor x, Tensor weight, float eps=1e-05) -> Tensor",
    lambda x, weight, eps=1e-5: _tessera.rms_norm(x, weight, eps),
    _like,
)
add_rms_norm = register(
    "add_rms_norm",
    "(Tensor x, Tensor(a!) residual, Tensor weight, float eps=1e-05) -> Tensor",
    lambda x, residual, weight, eps=1e-5: _tessera.rms_norm(x, weight, eps, residual=residual),
    _like,
)
rms_norm_quantized = register(
    "rms_norm_quantized",
    "(Tensor x, Tensor weight, str dtype, float eps=1e-05) -> (Tensor, Tensor)",
    lambda x, weight, dtype, eps=1e-5: _tessera.rms_norm(x, weight, eps, dtype=dtype),
    _quantized_rows,
)
add_rms_norm_quantized = register(
    "add_rms_norm_quantized",
    "(Tensor x, Tensor(a!) residual, Tensor weight, str dtype, float eps=1e-05)"
    " -> (Tensor, Tensor)",
    lambda x, residual, weight, dtype, eps=1e-5: _tessera.rms_norm(
        x, weight, eps, residual=residual, dtype=dtype
    ),
    lambda x, residual, weight, dtype, eps=1e-5: _quantized_rows(x, weight, dtype),
)
layer_norm = register(
    "layer_norm",
    "(Tensor x, Tensor weight, Tensor? bias=None, float eps=1e-05) -> Tensor",
    lambda x, weight, bias=None, eps=1e-5: _tessera.layer_norm(x, weight, bias, eps),
    _like,
)


def _rope(q, k, positions, table, style="half_split"):
    _tessera.rope(q, k, positions, table, style=style)


rope = register(
    "rope",
    '(Tensor(a!) q, Tensor(b!) k, Tensor positions, Tensor table, str style="half_split") -> ()',
    _rope,
    lambda q, k, positions, table, style="half_split": None,
)
relu = register("relu", "(Tensor x) -> Tensor", lambda x: _tessera.relu(x), _like)
silu = register("silu", "(Tensor x) -> Tensor", lambda x: _tessera.silu(x), _like)
gelu = register(
    "gelu",
    '(Tensor x, str approximate="none") -> Tensor',
    lambda x, approximate="none": _tessera.gelu(x, approximate=approximate),
    _like,
)
silu_mul = register(
    "silu_mul",
    "(Tensor gate, Tensor up) -> Tensor",
    lambda gate, up: _tessera.silu_mul(gate, up),
    _like,
)
gelu_mul = register(
    "gelu_mul",
    '(Tensor gate, Tensor up, str approximate="none") -> Tensor',
    lambda gate, up, approximate="none": _tessera.gelu_mul(gate, up, approximate=approximate),
    _like,
)
softmax = register(
    "softmax",
    "(Tensor x, float scale=1.0, Tensor? mask=None) -> Tensor",
    lambda x, scale=1.0, mask=None: _tessera.softmax(x, scale=scale, mask=mask),
    _like,
)
embedding = register(
    "embedding",
    "(Tensor table, Tensor ids) -> Tensor",
    lambda table, ids: _tessera.embedding(table, ids),
    lambda table, ids: table.new_empty((*ids.shape, table.shape[-1])),
)
transpose = register(
    "transpose",
    "(Tensor x, int axis0=-2, int axis1=-1) -> Tensor",
    lambda x, axis0=-2, axis1=-1: _tessera.transpose(x, axis0, axis1),
    lambda x, axis0=-2, axis1=-1: x.new_empty(x.swapaxes(axis0, axis1).shape),
)


def _fake_quantize(x, dtype, per="token", group_size=0):
    cols = x.shape[-1] // 2 if _tessera._dtypes.canonical(dtype) == "i4" else x.shape[-1]
    q = x.new_empty((*x.shape[:-1], cols), dtype=storage(dtype))
    scale = _tessera._quantize._scale_shape(x.shape, group_size or per)
    return q, x.new_empty(scale, dtype=torch.float32)


def _fake_quantize_asymmetric(x, dtype, per="token", group_size=0):
    q, scale = _fake_quantize(x, dtype, per, group_size)
    return q, scale, x.new_empty(scale.shape, dtype=torch.int32)


quantize = register(
    "quantize",
    '(Tensor x, str dtype, str per="token", int group_size=0) -> (Tensor, Tensor)',
    lambda x, dtype, per="token", group_size=0: _tessera.quantize(x, dtype, per=group_size or per),
    _fake_quantize,
)
quantize_asymmetric = register(
    "quantize_asymmetric",
    '(Tensor x, str dtype, str per="token", int group_size=0) -> (Tensor, Tensor, Tensor)',
    lambda x, dtype, per="token", group_size=0: _tessera.quantize(
        x, dtype, per=group_size or per, asymmetric=True
    ),
    _fake_quantize_asymmetric,
)


def _dequantize(q, scale, zero_point=None, format=None, dtype="float32"):
    return _tessera.dequantize(q, scale, zero_point, format=format, dtype=dtype)


def _fake_dequantize(q, scale, zero_point=None, format=None, dtype="float32"):
    is_packed = format is not None and _tessera._dtypes.canonical(format) == "i4"
    shape = (*q.shape[:-1], q.shape[-1] * 2) if is_packed else q.shape
    return q.new_empty(shape, dtype=storage(dtype))


dequantize = register(
    "dequantize",
    "(Tensor q, Tensor scale, Tensor? zero_point=None, str? format=None, "
    'str dtype="float32") -> Tensor',
    _dequantize,
    _fake_dequantize,
)
reduce = register(
    "reduce",
    "(Tensor x, str kind) -> Tensor",
    lambda x, kind: _tessera.reduce(x, kind),
    lambda x, kind: x.new_empty(x.shape[:-1], dtype=torch.float32),
)
argmax = register(
    "argmax",
    "(Tensor x) -> Tensor",
    lambda x: _tessera.argmax(x),
    lambda x: x.new_empty(x.shape[:-1], dtype=torch.int64),
)


def _gemm(
    a,
    b,
    bias=None,
    activation=None,
    is_gated=False,
    residual=None,
    dtype=None,
    out_scale=None,
    b_scale=None,
    allow_tf32=False,
    is_b_static=False,
):
    return _tessera.gemm(
        a,
        b,
        bias=bias,
        activation=activation,
        is_gated=is_gated,
        residual=residual,
        dtype=dtype,
        out_scale=out_scale,
        b_scale=b_scale,
        allow_tf32=allow_tf32,
        is_b_static=is_b_static,
    )


def _fake_gemm(
    a, b, bias=None, activation=None, is_gated=False, residual=None, dtype=None, *_args, **_kwargs
):
    shape = _tessera._gemm._product_shape(a.shape, b.shape, is_gated)
    return a.new_empty(shape, dtype=a.dtype if dtype is None else storage(dtype))


gemm = register(
    "gemm",
    "(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, bool is_gated=False, "
    "Tensor? residual=None, str? dtype=None, Tensor? out_scale=None, Tensor? b_scale=None, "
    "bool allow_tf32=False, bool is_b_static=False) -> Tensor",
    _gemm,
    _fake_gemm,
)
pack_gate_up = register(
    "pack_gate_up",
    "(Tensor gate, Tensor up) -> Tensor",
    lambda gate, up: _tessera.pack_gate_up(gate, up),
    lambda gate, up: gate.new_empty((2 * gate.shape[0], gate.shape[1])),
)


def _fake_prune_2_4(w):
    n, k = w.shape
    meta = w.new_empty(((n + 31) // 32, k // 32, 32), dtype=torch.int32)
    return w.new_empty((n, k // 2)), meta


prune_2_4 = register(
    "prune_2_4",
    "(Tensor w) -> (Tensor, Tensor)",
    lambda w: _tessera.prune_2_4(w),
    _fake_prune_2_4,
)
expand_2_4 = register(
    "expand_2_4",
    "(Tensor values, Tensor meta) -> Tensor",
    lambda values, meta: _tessera.expand_2_4(values, meta),
    lambda values, meta: values.new_empty((values.shape[0], 2 * values.shape[1])),
)
gemm_2_4 = register(
    "gemm_2_4",
    "(Tensor a, Tensor values, Tensor meta) -> Tensor",
    lambda a, values, meta: _tessera.gemm_2_4(a, values, meta),
    lambda a, values, meta: a.new_empty((a.shape[0], values.shape[0])),
)
