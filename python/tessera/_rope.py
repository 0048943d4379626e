# Rotary position embedding and its table.
# SPDX-License-Identifier: MIT
import ctypes

from . import _dlpack
from ._call import make_op
from ._library import Error, RopeScaling, lib, raise_error

_rope = make_op("rope", "q k positions table", "q k")
_STYLES = {"half_split": 0, "interleaved": 1}
_KINDS = {"none": 0, "default": 0, "linear": 1, "llama3": 2, "yarn": 3}
# Names in a model's config.json, and the field each sets.
_FIELDS = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_positions",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}


def style_code(style, what):
    """The TesseraRopeStyle of a name."""
    code = _STYLES.get(style)
    if code is None:
        raise Error(f"{what} is {style!r}; want half_split or interleaved")
    return code


def rope(q, k, positions, table, *, style="half_split"):
    """Rotates the first rotary_dim elements of every head of q and k, in place.

    q [tokens, num_heads, head_dim], k [tokens, num_kv_heads, head_dim] or None, positions [tokens]
    (int32 or int64), table from make_rope_table on the same device. Returns (q, k).
    """
    _rope((q, k, positions, table), style_code(style, "rope: style"))
    return q, k


def _scaling_struct(scaling):
    given = dict(scaling)
    kind = given.pop("rope_type", None) or given.pop("type", "default")
    given.pop("type", None)
    given.pop("rope_theta", None)
    if kind not in _KINDS:
        raise Error(f"make_rope_table: rope_type is {kind!r}; want one of {', '.join(_KINDS)}")
    struct = RopeScaling(ctypes.sizeof(RopeScaling), _KINDS[kind], 1.0, 1.0, 4.0, 0, 32.0, 1.0, 0.0)
    for name, value in given.items():
        if name not in _FIELDS:
            raise Error(f"make_rope_table: scaling has {name!r}; known are {', '.join(_FIELDS)}")
        if value is not None:
            setattr(struct, _FIELDS[name], value)
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
    address = _dlpack.framework_of(table).borrow(table, keep)
    status = lib.make_rope_table(
        address, theta, None if struct is None else ctypes.addressof(struct)
    )
    if status:
        raise_error(status)
    return table if like is None else _dlpack.framework_of(like).from_numpy(table, like)
