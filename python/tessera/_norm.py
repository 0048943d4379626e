# RMSNorm and LayerNorm, with the residual added first and the result quantised last.
# SPDX-License-Identifier: MIT
from ._call import empty, empty_like, make_op, shape_of
from ._dtypes import AUTO, CODES, canonical
from ._objects import as_float

_rms_norm = make_op(
    "rms_norm", "x weight out residual static_scale token_scale", "out residual token_scale"
)
_layer_norm = make_op(
    "layer_norm", "x weight bias out residual static_scale token_scale", "out residual token_scale"
)


def _outputs(op, x, dtype, out, static_scale, token_scale):
    """(out, token_scale, format code): what the caller left out is made."""
    if dtype is None:
        if out is None:
            out = empty_like(op, x)
        return out, token_scale, AUTO
    name = canonical(dtype, f"{op}: dtype")
    if out is None:
        out = empty(op, x, shape_of(op, "x", x), name)
    if name not in ("e4m3", "e5m2", "i8"):
        return out, token_scale, CODES[name]
    if static_scale is None and token_scale is None:
        token_scale = empty(op, x, shape_of(op, "x", x)[:-1], "f32")
    return out, token_scale, CODES[name]


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
    ):  # the common call, made short
        _rms_norm((x, weight, out), as_float(eps), AUTO)
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
