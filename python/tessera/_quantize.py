# Quantise and dequantise: integers and FP8, with scales for a tensor, channel, token or group.
# SPDX-License-Identifier: MIT
from math import prod

from ._call import dtype_of, empty, make_op, shape_of
from ._dtypes import CODES, canonical, code_of
from ._library import Error

_quantize = make_op("quantize", "x out scale zero_point", "out scale zero_point")
_quantize_fixed = make_op("quantize", "x out scale zero_point", "out")
_dequantize = make_op("dequantize", "x scale zero_point out", "out")
_DYNAMIC, _FIXED = range(2)


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
        _quantize_fixed((x, q, scale, zero_point), _FIXED, CODES[name])
        return (q, scale, zero_point) if has_zero else (q, scale)
    if out_scale is None:
        out_scale = empty("quantize", x, _scale_shape(x_shape, per), "f32")
    if has_zero and out_zero is None:
        out_zero = empty("quantize", x, shape_of("quantize", "scale", out_scale), "i32")
    _quantize((x, q, out_scale, out_zero), _DYNAMIC, CODES[name])
    return (q, out_scale, out_zero) if has_zero else (q, out_scale)


def dequantize(q, scale, zero_point=None, *, format=None, dtype="float32", out=None):
    """(q - zero_point) * scale. format: what uint8 storage holds, if not plain uint8."""
    code = code_of(format, "dequantize: format")
    if out is None:
        shape = shape_of("dequantize", "q", q, least_rank=1)
        if code == CODES["i4"] and dtype_of("dequantize", "q", q) in ("u8", "i8"):
            shape = (*shape[:-1], shape[-1] * 2)
        out = empty("dequantize", q, shape, canonical(dtype, "dequantize: dtype"))
    _dequantize((q, scale, zero_point, out), code)
    return out
