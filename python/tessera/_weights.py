# Quantised weights laid out for the kernel that will read them.
# SPDX-License-Identifier: MIT
import ctypes

from ._call import dtype_of, empty, make_struct_op, shape_of
from ._frameworks import borrow_carefully, canonical
from ._gemm import pack_gemm_weight
from ._library import lib, raise_error
from ._operations import OPERATIONS, PACKINGS

_pack, _pack_scalars = make_struct_op("pack_weight")
_PACKING_NAMES = {number: name for name, number in PACKINGS.items()}


def pack_weight(
    values, scale, zero_point=None, *, dtype="int4", group=0, packing="rows", to="fragments",
    scale_dtype="float32",
):
    """A quantised weight in another layout: (values, scale), with zero_point if there is one.

    values int4 [n, k / 2] as quantize makes them, with groups in a row; n and k multiples of 64.
    Packing back (packing="fragments", to="rows") gives the same bytes again. On a GPU the packed
    zero points are uint8. Packed scales have the type scale_dtype, float32, float16 or bfloat16,
    and are rounded to it. Scales in rows are float32.
    """
    op = "pack_weight"
    out = empty(op, values, shape_of(op, "values", values), dtype_of(op, "values", values))
    kind = "f32" if to == "rows" else canonical(scale_dtype, f"{op}: scale_dtype")
    out_scale = empty(op, scale, shape_of(op, "scale", scale), kind)
    out_zero = None
    if zero_point is not None:
        is_packed_on_gpu = to != "rows" and values.__dlpack_device__()[0] != 1
        kind = "u8" if is_packed_on_gpu else dtype_of(op, "zero_point", zero_point)
        out_zero = empty(op, zero_point, shape_of(op, "zero_point", zero_point), kind)
    tensors = (values, scale, zero_point, out, out_scale, out_zero)
    _pack(tensors, _pack_scalars(group, dtype, packing, to))
    return (out, out_scale) if out_zero is None else (out, out_scale, out_zero)


def preferred_packing(a, b, b_scale, b_zero_point=None, *, b_dtype="int4", b_group=0):
    """The layout of b ("rows" or "fragments") that the best kernel for a . b^T takes.

    a: a tensor as it will be multiplied. Ask once for each weight when a model is loaded.
    """
    shape = (*shape_of("gemm", "a", a)[:-1], shape_of("gemm", "b", b)[-2])
    out = empty("gemm", a, shape, dtype_of("gemm", "a", a))
    op = OPERATIONS["gemm_weight"]
    keep = []
    given = (a, b, out, None, None, b_scale, None, b_zero_point)
    addresses = borrow_carefully("preferred_packing", op.tensors, {"out"}, given, keep)
    scalars = pack_gemm_weight(1, b_group, None, 0, None, b_dtype, "rows")
    struct = op.struct.from_buffer_copy(scalars._obj)
    for name, address in zip(op.tensors, addresses):
        setattr(struct, name, address)
    packing = ctypes.c_int32()
    status = lib.preferred_packing(ctypes.addressof(struct), ctypes.addressof(packing), None)
    if status:
        raise_error(status)
    return _PACKING_NAMES[packing.value]
