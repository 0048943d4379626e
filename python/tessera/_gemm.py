# Matrix products with a weight, dense and 2:4 sparse, and what prepares those weights.
# SPDX-License-Identifier: MIT
from ._call import dtype_of, empty, make_op, make_struct_op, number_of, shape_of
from ._frameworks import canonical, code_of
from ._library import Error
from ._operations import ACTIVATIONS, DTYPES, GEMM_FLAGS

_gemm = make_op("gemm")
_gemm_weight, pack_gemm_weight = make_struct_op("gemm_weight")
_gemm_codes, _pack_gemm_codes = make_struct_op("gemm_codes")
_gemm_table, _pack_gemm_table = make_struct_op("gemm_table")
_sum_weight_rows = make_op("sum_weight_rows")
_pack_gate_up = make_op("pack_gate_up")
_prune_2_4 = make_op("prune_2_4")
_expand_2_4 = make_op("expand_2_4")
_gemm_2_4 = make_op("gemm_2_4")

_GATED, _ALLOW_TF32, _STATIC_B = (
    GEMM_FLAGS[name] for name in ("gated", "allow_tf32", "static_b")
)
_NAMES = {code: name for name, code in DTYPES.items()}


def _out_dtype(a, dtype, out_scale, a_scale):
    """The canonical name of the result's dtype."""
    if dtype is not None:
        return canonical(dtype, "gemm: dtype")
    if out_scale is not None:
        raise Error("gemm: out_scale is given without dtype; say 'int8' or 'float8_e4m3fn'")
    return dtype_of("gemm", "a", a) if a_scale is None else "f32"


def _product_shape(a, b, is_gated=False):
    """The shape of a . b^T; operands that the operation will refuse must not raise here."""
    return (*a[:-1], *(n // 2 if is_gated else n for n in b[-2:-1]))


def _refuse_beside_table(**given):
    for name, value in given.items():
        if value is not None:
            raise Error(f"gemm: {name} is given and b has a table; leave it out, or b_table")


def gemm(
    a,
    b,
    *,
    bias=None,
    activation=None,
    is_gated=False,
    residual=None,
    out=None,
    dtype=None,
    out_scale=None,
    b_scale=None,
    allow_tf32=False,
    is_b_static=False,
    b_zero_point=None,
    b_order=None,
    b_dtype=None,
    b_group=0,
    b_rows_per_scale=1,
    b_packing="rows",
    a_scale=None,
    a_zero_point=None,
    a_dtype=None,
    b_row_sums=None,
    sums_in_float=False,
    b_table=None,
):
    """activation(a . b^T + bias) + residual: a [m, k], b [n, k], out [m, n], rounded once.

    activation: "relu", "silu", "gelu" (by erf) or "gelu_tanh". is_gated: b (and bias) is from
    pack_gate_up, out [m, n / 2] is activation(gate) * up. With a batch axis before them, a, out and
    residual are [batch, m, ...] and b is [batch, n, k] or one [n, k] for all. residual may be out.
    dtype: that of the result, if not that of a: "float32", or "int8" or "float8_e4m3fn", in units
    of `out_scale` (float32 [1]).

    b may be quantised, with `b_scale` float32 [1], [n], [n, groups] or [n / b_rows_per_scale,
    groups]: int8, uint8 with b_zero_point (int32 or uint8, shape of b_scale), packed int4 ([n,
    k / 2] with b_dtype "int4", with or without b_zero_point), or FP8 (bytes with b_dtype "e4m3" or
    "e5m2"). b_group: elements of k per scale, if the last group is incomplete. b_order: int32 [k],
    column i of b belongs to column b_order[i] of a. b_packing: how pack_weight has laid it out.
    b_table: float32 [16], for packed int4 without zero points: codes are indices, and the weight is
    b_table[code] * b_scale, as in NF4 and MXFP4. CPUs take all of these, a GPU those that it has
    kernels for (`supports`).

    a may hold codes too, with `a_scale` float32 [1], [m] (per token) or [m, k / 128]: int8 beside
    int8, or FP8 (bytes with a_dtype "e4m3") beside b_dtype "e4m3", or uint8 with a_zero_point
    (int32 [1] or [m]), which on a GPU needs b_row_sums from sum_weight_rows. On a CPU, int8 and FP8
    also go beside b_dtype "int4" without zero points (W4A8), and so does a packed int4 a ([m,
    k / 2] with a_dtype "int4", W4A4), which keeps little of a. The result is float32,
    or `dtype`; bias and residual are bfloat16, or float16 like the result, or float32 on a CPU.
    sums_in_float: FP8 is added in float after every 128 elements.

    allow_tf32: float32 may be multiplied by tensor cores, which keep 11 bits. is_b_static: no
    queued work writes b, so the kernel may read it early; true for weights of a loaded model.
    """
    kind = number_of(activation, ACTIVATIONS, "gemm: activation")
    format = 0  # that of out
    if out is None:
        shape = _product_shape(shape_of("gemm", "a", a), shape_of("gemm", "b", b), is_gated)
        name = _out_dtype(a, dtype, out_scale, a_scale)
        out = empty("gemm", a, shape, name)
        format = DTYPES[name]
    elif dtype is not None:
        format = code_of(dtype, "gemm: dtype")
    flags = _GATED if is_gated else 0
    if allow_tf32:
        flags |= _ALLOW_TF32
    if is_b_static:
        flags |= _STATIC_B
    if b_table is not None:
        _refuse_beside_table(
            b_zero_point=b_zero_point, b_order=b_order, a_scale=a_scale, a_zero_point=a_zero_point,
            a_dtype=a_dtype, b_row_sums=b_row_sums,
            b_packing=None if b_packing == "rows" else b_packing,
        )
        tensors = (a, b, out, b_scale, b_table, bias, residual, out_scale)
        _gemm_table(tensors, _pack_gemm_table(
            b_rows_per_scale, b_group, activation, flags, _NAMES.get(format), b_dtype or "int4"
        ))
        return out
    if a_scale is not None or a_zero_point is not None or a_dtype is not None:
        for name, given in (("b_zero_point", b_zero_point), ("b_order", b_order)):
            if given is not None:
                raise Error(f"gemm: {name} is given and a holds codes; leave it out, or a_scale")
        if b_packing != "rows":
            raise Error(f"gemm: b_packing is '{b_packing}' and a holds codes; it must be 'rows'")
        tensors = (
            a, b, out, a_scale, b_scale, bias, residual, out_scale, a_zero_point, b_row_sums
        )
        _gemm_codes(tensors, _pack_gemm_codes(
            b_rows_per_scale, b_group, activation, flags, _NAMES.get(format), a_dtype, b_dtype,
            sums_in_float,
        ))
        return out
    has_form = b_zero_point is not None or b_order is not None or b_dtype is not None
    if has_form or b_group or b_rows_per_scale != 1 or b_packing != "rows":
        tensors = (a, b, out, bias, residual, b_scale, out_scale, b_zero_point, b_order)
        _gemm_weight(tensors, pack_gemm_weight(
            b_rows_per_scale, b_group, activation, flags, _NAMES.get(format), b_dtype, b_packing
        ))
    elif bias is None and residual is None and b_scale is None and out_scale is None:
        _gemm((a, b, out), kind, flags, format)
    else:
        _gemm((a, b, out, bias, residual, b_scale, out_scale), kind, flags, format)
    return out


def sum_weight_rows(values, *, out=None):
    """The sums of the rows of int8 codes [n, k] as float32 [n]: b_row_sums of gemm."""
    if out is None:
        shape = shape_of("sum_weight_rows", "values", values)[:1]
        out = empty("sum_weight_rows", values, shape, "f32")
    _sum_weight_rows((values, out))
    return out


def pack_gate_up(gate, up, *, out=None):
    """Packs the weights gate and up, [inter, k] each, into the b [2 inter, k] of a gated product.

    b has 8 rows of gate, then the same 8 of up, and so on; inter is a multiple of 8.
    """
    if out is None:
        rows, *rest = shape_of("pack_gate_up", "gate", gate) or (0,)
        name = dtype_of("pack_gate_up", "gate", gate)
        out = empty("pack_gate_up", gate, (2 * rows, *rest), name)
    _pack_gate_up((gate, up, out))
    return out


def prune_2_4(w, *, out=None):
    """Prunes w [n, k] to the two largest of every four neighbours: (values, meta).

    w is float16 or bfloat16 on the CPU, k a multiple of 32; values [n, k / 2], meta int32
    [ceil(n / 32), k / 32, 32]. out: a tuple like the one returned, to write into.
    """
    values, meta = (None, None) if out is None else out
    *rows, k = shape_of("prune_2_4", "w", w) or (0,)
    if values is None:
        name = dtype_of("prune_2_4", "w", w)
        values = empty("prune_2_4", w, (*rows, k // 2), name)
    if meta is None:
        meta = empty("prune_2_4", w, (*(-(-n // 32) for n in rows), k // 32, 32), "i32")
    _prune_2_4((w, values, meta))
    return values, meta


def expand_2_4(values, meta, *, out=None):
    """The pruned weight as a dense tensor [n, k] with zeros, on the CPU."""
    if out is None:
        *rows, half = shape_of("expand_2_4", "values", values) or (0,)
        name = dtype_of("expand_2_4", "values", values)
        out = empty("expand_2_4", values, (*rows, 2 * half), name)
    _expand_2_4((values, meta, out))
    return out


def gemm_2_4(a, values, meta, *, out=None):
    """a . w^T for a weight w that prune_2_4 has turned into values and meta; on CPU or GPU."""
    if out is None:
        shapes = shape_of("gemm_2_4", "a", a), shape_of("gemm_2_4", "values", values)
        name = dtype_of("gemm_2_4", "a", a)
        out = empty("gemm_2_4", a, _product_shape(*shapes), name)
    _gemm_2_4((a, values, meta, out))
    return out
