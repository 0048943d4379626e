# Activations, softmax, embedding lookup and strided copies.
# SPDX-License-Identifier: MIT
from ._call import dtype_of, empty, empty_like, make_op, shape_of
from ._library import Error
from ._objects import as_float

_activation = make_op("activation", "x up out", "out")
_softmax = make_op("softmax", "x mask out", "out")
_embedding = make_op("embedding", "table ids out", "out")
_copy = make_op("copy", "x out", "out")

_RELU, _SILU, _GELU, _GELU_TANH = range(4)
_APPROXIMATE = {"none": _GELU, "tanh": _GELU_TANH}


def _activate(op, x, up, out, kind):
    if out is None:
        out = empty_like(op, x)
    _activation((x, up, out), kind)
    return out


def _gelu_kind(op, approximate):
    kind = _APPROXIMATE.get(approximate)
    if kind is None:
        raise Error(f"{op}: approximate is {approximate!r}; want 'none' or 'tanh'")
    return kind


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


def embedding(table, ids, *, out=None):
    """table[ids]: table [vocab, hidden], ids [tokens] of int32 or int64."""
    if out is None:
        hidden = shape_of("embedding", "table", table, least_rank=1)[-1]
        shape = (*shape_of("embedding", "ids", ids), hidden)
        out = empty("embedding", table, shape, dtype_of("embedding", "table", table))
    _embedding((table, ids, out))
    return out


def copy(x, *, out=None):
    """x with any strides, copied to out with any strides; a new contiguous tensor without out."""
    if out is None:
        out = empty_like("copy", x)
    _copy((x, out))
    return out


def transpose(x, axis0=-2, axis1=-1, *, out=None):
    """A copy of x with two axes exchanged, contiguous unless out says otherwise."""
    shape_of("transpose", "x", x)
    try:
        swapped = x.swapaxes(axis0, axis1)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise Error(f"transpose: x cannot exchange axes {axis0} and {axis1}: {error}") from None
    return copy(swapped, out=out)
