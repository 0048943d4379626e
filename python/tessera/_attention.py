# Attention of whole prompts and chunks of them: batched, ragged or over pages.
# SPDX-License-Identifier: MIT
import ctypes
from functools import lru_cache

from ._call import dtype_of, empty, make_struct_op, shape_of, whole
from ._dtypes import CODES, canonical, code_of
from ._library import AttentionArgs, Error

_LEFT, _RIGHT = 1, 2  # TesseraAttentionBounds of c_attention.h
_attention_prefill = make_struct_op("attention_prefill", AttentionArgs, "out lse")


@lru_cache(maxsize=256)
def _scalars(left, right, seed, rate, scale, softcap, format, sums_in_float):
    """A pointer to the struct of a call without its tensors; the library copies it."""
    bounds = (_LEFT if left >= 0 else 0) | (_RIGHT if right >= 0 else 0)
    args = AttentionArgs(struct_size=ctypes.sizeof(AttentionArgs))
    args.left, args.right, args.bounds = max(left, 0), max(right, 0), bounds
    args.dropout_seed, args.dropout_rate = seed, rate
    args.scale, args.softcap, args.format = scale, softcap, format
    args.sums_in_float = sums_in_float
    return ctypes.byref(args)


def _bounds(causal, window):
    """(left, right) of the mask, -1 for none."""
    try:
        left, right = (-1 if n is None else int(n) for n in (window or (None, None)))
        for count in (left, right):
            whole(count, "attention_prefill: window", low=-(2**63))
    except (TypeError, ValueError):
        raise Error(
            f"attention_prefill: window is {window!r}; want (left, right), counts of keys before "
            "and behind a query's own, None for no bound"
        ) from None
    if causal and right > 0:
        raise Error(f"attention_prefill: causal is set and window {window!r} sees keys behind")
    return left, 0 if causal else right


def _out_shape(q, v):
    """Of q's with the heads of v. Whatever the operation will refuse has some shape too."""
    return (*q[:-1], *v[-1:])


def _lse_shape(q):
    """[batch, num_heads, q_len] or, ragged, [num_heads, tokens]."""
    return (*q[:-3], *q[-2:-1], *q[-3:-2])


def _out_dtype(q, format, dtype):
    """The canonical name of the type attention makes: q's, or bf16 of codes."""
    if dtype is not None:
        return canonical(dtype, "attention_prefill: dtype")
    name = dtype_of("attention_prefill", "q", q)
    return "bf16" if name == "e4m3" or format == CODES["e4m3"] else name


def attention_prefill(
    q,
    k,
    v,
    *,
    out=None,
    lse=None,
    return_lse=False,
    scale=None,
    causal=False,
    window=None,
    intervals=None,
    softcap=None,
    sinks=None,
    alibi_slopes=None,
    q_starts=None,
    kv_starts=None,
    kv_lens=None,
    k_page_table=None,
    v_page_table=None,
    q_scale=None,
    k_scale=None,
    v_scale=None,
    sums_in_float=False,
    dropout_rate=0.0,
    dropout_seed=0,
    dtype=None,
    format=None,
):
    """softmax(scale q . k^T) . v over the keys each query sees; scale None: 1 / sqrt(d_k).

    Batched: q [batch, q_len, num_heads, d_k], k and v [batch, kv_len, num_kv_heads, d]. Ragged: q
    [tokens, num_heads, d_k] with q_starts, k and v [kv_tokens, ...] with kv_starts, int32
    [batch + 1]. Paged: k and v [num_pages, page_size, num_kv_heads, d] with k_page_table int32
    [batch, max_pages] (v_page_table, if v's pages lie elsewhere) and kv_lens int32 [batch]. Heads
    may lie anywhere: q.transpose(1, 2) of a tensor [batch, num_heads, q_len, d] is fine.

    The last query stands at the last key. causal: keys behind a query are not seen. window: (left,
    right), how many keys before and behind its own a query sees, None for all. intervals: int32
    [batch, q_len, n, 2] or [tokens, n, 2] with n 1 or 2: the keys [begin, end) a query may see.
    softcap c: scores become c tanh(score / c). sinks, alibi_slopes: float32 [num_heads].
    float8_e4m3fn (or bytes with format "e4m3"): q_scale, k_scale, v_scale are float32 [batch,
    num_kv_heads], and dtype says "bfloat16" (the default) or "float16" for the result;
    sums_in_float adds blocks of keys in float, slower, where the GPU's own sums are too coarse.

    Returns out; (out, lse) if lse is given or asked for by return_lse: the logarithm of the sum of
    exponentials, float32 [batch, num_heads, q_len] or [num_heads, tokens].
    """
    left, right = _bounds(causal, window)
    code = code_of(format, "attention_prefill: format")
    if out is None:
        shapes = (shape_of("attention_prefill", name, x) for name, x in (("q", q), ("v", v)))
        out = empty("attention_prefill", q, _out_shape(*shapes), _out_dtype(q, code, dtype))
    if lse is None and return_lse:
        shape = _lse_shape(shape_of("attention_prefill", "q", q))
        lse = empty("attention_prefill", q, shape, "f32", "lse")
    seed = whole(dropout_seed, "attention_prefill: dropout_seed", high=2**64 - 1)
    numbers = (seed, dropout_rate, scale or 0.0, softcap or 0.0, code)
    scalars = _scalars(left, right, *numbers, bool(sums_in_float))
    tensors = (q, k, v, out, lse, intervals, sinks, alibi_slopes, q_starts, kv_starts, kv_lens)
    tensors += (k_page_table, v_page_table, q_scale, k_scale, v_scale)
    _attention_prefill(tensors, scalars)
    return out if lse is None else (out, lse)
