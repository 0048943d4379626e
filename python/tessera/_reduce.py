# Reductions over the last axis.
# SPDX-License-Identifier: MIT
from ._call import empty, make_op, shape_of
from ._dtypes import canonical
from ._library import Error

_reduce = make_op("reduce", "x out", "out")
_argmax = make_op("argmax", "x out", "out")
_KINDS = {"sum": 0, "mean": 1, "max": 2, "min": 3, "absmax": 4}


def reduce(x, kind, *, out=None):
    """The "sum", "mean", "max", "min" or "absmax" of each row, in float32."""
    code = _KINDS.get(kind)
    if code is None:
        raise Error(f"reduce: kind is {kind!r}; want one of {', '.join(_KINDS)}")
    if out is None:
        out = empty("reduce", x, shape_of("reduce", "x", x)[:-1], "f32")
    _reduce((x, out), code)
    return out


def argmax(x, *, dtype="int64", out=None):
    """The index of each row's largest element; of equals the first, and NaN counts as largest."""
    if out is None:
        shape = shape_of("argmax", "x", x)[:-1]
        out = empty("argmax", x, shape, canonical(dtype, "argmax: dtype"))
    _argmax((x, out))
    return out
