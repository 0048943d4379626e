# Norms, RoPE, activations, softmax, lookups, copies, quantisation and reductions.
# SPDX-License-Identifier: MIT
import ctypes
from math import prod

from . import _frameworks
from ._call import as_float, dtype_of, empty, empty_like, make_op, number_of, shape_of
from ._frameworks import canonical, code_of
from ._library import Error, lib, raise_error
from ._operations import ACTIVATIONS, DTYPES, REDUCTIONS, ROPE_SCALINGS, ROPE_STYLES, SCALE_MODES
from ._operations import RopeScaling

_rms_norm = make_op("rms_norm")
_layer_norm = make_op("layer_norm")
_rope = make_op("rope")
_activation = make_op("activation")
_softmax = make_op("softmax")
_embedding = make_op("embedding")
_embedding_computed = make_op("embedding_computed")
_copy = make_op("copy")
_quantize = make_op("quantize")
_quantize_fixed = make_op("quantize", reads="scale zero_point")
_dequantize = make_op("dequantize")
_reduce = make_op("reduce")
_argmax = make_op("argmax")
_scale = make_op("scale")


def _outputs(op, x, dtype, out, static_scale, token_scale):
    """(out, token_scale, format code), with the outputs that the caller did not pass."""
    if dtype is None:
        if out is None:
            out = empty_like(op, x)
        return out, token_scale, 0
    name = canonical(dtype, f"{op}: dtype")
    if out is None:
        out = empty(op, x, shape_of(op, "x", x), name)
    if name not in ("e4m3", "e5m2", "i8"):
        return out, token_scale, DTYPES[name]
    if static_scale is None and token_scale is None:
        token_scale = empty(op, x, shape_of(op, "x", x)[:-1], "f32")
    return out, token_scale, DTYPES[name]


def rms_norm(
    x, weight, eps=1e-5, *, residual=None, out=None, dtype=None, static_scale=None, token_scale=None
):
    """h / sqrt(mean(h^2) + eps) * weight over the last axis, where h = x, or residual += x.

    dtype "int8" or "float8_e4m3fn" quantises the result: by `static_scale` (float32 [1]) if given,
    otherwise with one scale a row, written to `token_scale` (float32, the leading shape of x).
    Returns out; (out, token_scale) where a scale a row was computed.
    """
    if (out is not None and dtype is None and residual is None) and (
        static_scale is None and token_scale is None
    ):  # a short path for the most common call
        _rms_norm((x, weight, out), as_float(eps), 0)
        return out
    out, token_scale, code = _outputs("rms_norm", x, dtype, out, static_scale, token_scale)
    _rms_norm((x, weight, out, residual, static_scale, token_scale), as_float(eps), code)
    return out if token_scale is None else (out, token_scale)


def layer_norm(
    x,
    weight,
    bias=None,
    eps=1e-5,
    *,
    residual=None,
    out=None,
    dtype=None,
    static_scale=None,
    token_scale=None,
):
    """(h - mean(h)) / sqrt(var(h) + eps) * weight + bias; everything else as in rms_norm."""
    out, token_scale, code = _outputs("layer_norm", x, dtype, out, static_scale, token_scale)
    _layer_norm((x, weight, bias, out, residual, static_scale, token_scale), as_float(eps), code)
    return out if token_scale is None else (out, token_scale)


# Names in a model's config.json, and the fields of RopeScaling that they set.
_SCALING_FIELDS = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_positions",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}


def rope(q, k, positions, table, *, style="half_split"):
    """Rotates the first rotary_dim elements of every head of q and k, in place.

    q [tokens, num_heads, head_dim], k [tokens, num_kv_heads, head_dim] or None, positions [tokens]
    (int32 or int64), table from make_rope_table on the same device. Returns (q, k).
    """
    _rope((q, k, positions, table), number_of(style, ROPE_STYLES, "rope: style"))
    return q, k


def _scaling_struct(scaling):
    given = dict(scaling)
    kind = given.pop("rope_type", None) or given.pop("type", "default")
    given.pop("type", None)
    given.pop("rope_theta", None)
    kinds = {"default": ROPE_SCALINGS["none"], **ROPE_SCALINGS}
    if kind not in kinds:
        raise Error(f"make_rope_table: rope_type is {kind!r}; want one of {', '.join(kinds)}")
    struct = RopeScaling(ctypes.sizeof(RopeScaling), kinds[kind], 1.0, 1.0, 4.0, 0, 32.0, 1.0, 0.0)
    for name, value in given.items():
        if name not in _SCALING_FIELDS:
            known = ", ".join(_SCALING_FIELDS)
            raise Error(f"make_rope_table: scaling has {name!r}; known are {known}")
        if value is not None:
            setattr(struct, _SCALING_FIELDS[name], value)
    return struct


def make_rope_table(num_positions, rotary_dim, theta=10000.0, *, scaling=None, like=None):
    """float32 [num_positions, rotary_dim]: cosines of every pair's angle, then sines.

    scaling: the "rope_scaling" dictionary of a model's config.json (linear, llama3, yarn). like: a
    tensor whose framework and device the table gets; without it, a NumPy array.
    """
    import numpy

    table = numpy.empty((num_positions, rotary_dim), numpy.float32)
    struct = None if scaling is None else _scaling_struct(scaling)
    keep = []
    address = _frameworks.framework_of(table).borrow(table, keep)
    status = lib.make_rope_table(
        address, theta, None if struct is None else ctypes.addressof(struct)
    )
    if status:
        raise_error(status)
    return table if like is None else _frameworks.framework_of(like).from_numpy(table, like)

_RELU, _SILU = ACTIVATIONS["relu"], ACTIVATIONS["silu"]
_APPROXIMATE = {"none": ACTIVATIONS["gelu"], "tanh": ACTIVATIONS["gelu_tanh"]}


def _activate(op, x, up, out, kind):
    if out is None:
        out = empty_like(op, x)
    _activation((x, up, out), kind)
    return out


def _gelu_kind(op, approximate):
    return number_of(approximate, _APPROXIMATE, f"{op}: approximate")


def relu(x, *, out=None):
    """max(x, 0)"""
    return _activate("relu", x, None, out, _RELU)


def silu(x, *, out=None):
    """x / (1 + exp(-x))"""
    return _activate("silu", x, None, out, _SILU)


def gelu(x, *, approximate="none", out=None):
    """x * Phi(x) by erf, or its tanh form with approximate="tanh"."""
    return _activate("gelu", x, None, out, _gelu_kind("gelu", approximate))


def silu_mul(gate, up, *, out=None):
    """silu(gate) * up: SwiGLU. gate and up may be the halves of one matrix."""
    shape_of("silu_mul", "up", up)
    return _activate("silu_mul", gate, up, out, _SILU)


def gelu_mul(gate, up, *, approximate="none", out=None):
    """gelu(gate) * up: GeGLU."""
    shape_of("gelu_mul", "up", up)
    return _activate("gelu_mul", gate, up, out, _gelu_kind("gelu_mul", approximate))


def softmax(x, *, scale=1.0, mask=None, out=None):
    """softmax(scale * x + mask) over the last axis.

    mask [mask_rows, cols]: float32 is added; bool or uint8 hides where it is 0. Row r of x reads
    mask row r % mask_rows.
    """
    if out is None:
        out = empty_like("softmax", x)
    _softmax((x, mask, out), as_float(scale))
    return out


def scale(x, scale=1.0, *, softcap=None, residual=None, out=None):
    """y + residual, where y = scale * x, or softcap * tanh(scale * x / softcap) with a softcap.

    All tensors are contiguous, with the shape and dtype of x; out may be x or residual.
    """
    if out is None:
        out = empty_like("scale", x)
    _scale((x, out, residual), as_float(scale), as_float(softcap or 0.0))
    return out


def embedding(table, ids, *, out=None, computed=None):
    """table[ids]: table [vocab, hidden], ids [tokens] of int32 or int64.

    computed: int32 [count], ids that the device has yet to compute: id -1 - i is computed[i].
    """
    if out is None:
        hidden = shape_of("embedding", "table", table, least_rank=1)[-1]
        shape = (*shape_of("embedding", "ids", ids), hidden)
        out = empty("embedding", table, shape, dtype_of("embedding", "table", table))
    if computed is None:
        _embedding((table, ids, out))
    else:
        _embedding_computed((table, ids, out, computed))
    return out


def copy(x, *, out=None):
    """Copies x to out, both of any strides; without out, to a new contiguous tensor.

    Between float32, float16 and bfloat16 the values are converted; both must then be rows.
    """
    if out is None:
        out = empty_like("copy", x)
    _copy((x, out))
    return out


def transpose(x, axis0=-2, axis1=-1, *, out=None):
    """A copy of x with two axes exchanged; contiguous unless out is given."""
    shape_of("transpose", "x", x)
    try:
        swapped = x.swapaxes(axis0, axis1)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise Error(f"transpose: x cannot exchange axes {axis0} and {axis1}: {error}") from None
    return copy(swapped, out=out)


def _scale_shape(shape, per):
    rows, cols = prod(shape[:-1]), shape[-1]
    if per == "tensor":
        return (1, 1)
    if per == "channel":
        return (1, cols)
    if per == "token":
        return (rows, 1)
    if isinstance(per, int) and per > 0 and cols % per == 0:
        return (rows, cols // per)
    raise Error(
        f"quantize: per is {per!r} for {cols} columns; want 'tensor', 'channel', 'token' or a "
        "group size that divides them"
    )


def quantize(x, dtype, *, per="token", asymmetric=False, scale=None, zero_point=None, out=None):
    """x as small integers or FP8: (q, scale), or (q, scale, zero_point) with a zero point.

    dtype: "int8", "int4" (two to a byte: q is uint8 [..., cols / 2]), "float8_e4m3fn",
    "float8_e5m2", or "uint8", which has a zero point always; int4 has one if asymmetric. per:
    "tensor", "channel", "token", or the size of a group of consecutive elements in a row. Scales
    are computed from x unless `scale` (and `zero_point`) is given. out: a tuple like the one
    returned, to write into. Where a framework has no FP8 type q is uint8: keep the format's name.
    """
    name = canonical(dtype, "quantize: dtype")
    has_zero = asymmetric or name == "u8" or zero_point is not None
    is_fixed = scale is not None
    given = out if isinstance(out, (tuple, list)) else (out,)
    q, out_scale, out_zero = (*given, None, None)[:3]
    x_shape = shape_of("quantize", "x", x, least_rank=1)
    if q is None:
        shape = (*x_shape[:-1], x_shape[-1] // 2) if name == "i4" else x_shape
        q = empty("quantize", x, shape, name)
    if is_fixed:
        if has_zero and zero_point is None:
            raise Error("quantize: scale is given without zero_point; give both")
        _quantize_fixed((x, q, scale, zero_point), SCALE_MODES["fixed"], DTYPES[name])
        return (q, scale, zero_point) if has_zero else (q, scale)
    if out_scale is None:
        out_scale = empty("quantize", x, _scale_shape(x_shape, per), "f32")
    if has_zero and out_zero is None:
        out_zero = empty("quantize", x, shape_of("quantize", "scale", out_scale), "i32")
    _quantize((x, q, out_scale, out_zero), SCALE_MODES["dynamic"], DTYPES[name])
    return (q, out_scale, out_zero) if has_zero else (q, out_scale)


def dequantize(q, scale, zero_point=None, *, format=None, dtype="float32", out=None):
    """(q - zero_point) * scale. format: what uint8 storage holds, if not plain uint8."""
    code = code_of(format, "dequantize: format")
    if out is None:
        shape = shape_of("dequantize", "q", q, least_rank=1)
        if code == DTYPES["i4"] and dtype_of("dequantize", "q", q) in ("u8", "i8"):
            shape = (*shape[:-1], shape[-1] * 2)
        out = empty("dequantize", q, shape, canonical(dtype, "dequantize: dtype"))
    _dequantize((q, scale, zero_point, out), code)
    return out


def reduce(x, kind, *, out=None):
    """The "sum", "mean", "max", "min" or "absmax" of each row, in float32."""
    code = number_of(kind, REDUCTIONS, "reduce: kind")
    if out is None:
        out = empty("reduce", x, shape_of("reduce", "x", x)[:-1], "f32")
    _reduce((x, out), code)
    return out


def argmax(x, *, dtype="int64", out=None):
    """The index of each row's largest element, the first if several are equal; NaN is largest."""
    if out is None:
        shape = shape_of("argmax", "x", x)[:-1]
        out = empty("argmax", x, shape, canonical(dtype, "argmax: dtype"))
    _argmax((x, out))
    return out
