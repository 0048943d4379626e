# Attention of the newest tokens over a KV cache in any of its formats.
# SPDX-License-Identifier: MIT
import ctypes
from functools import lru_cache

from ._call import empty, empty_like, make_struct_op, shape_of, whole
from ._dtypes import code_of
from ._library import DecodeAttentionArgs

_attention_decode = make_struct_op("attention_decode", DecodeAttentionArgs, "out lse")


@lru_cache(maxsize=256)
def _scalars(window, longest, shares_pages, scale, softcap, k_format, v_format):
    """A pointer to the struct of a call without its tensors; the library copies it."""
    args = DecodeAttentionArgs(struct_size=ctypes.sizeof(DecodeAttentionArgs))
    args.window, args.longest, args.scale, args.softcap = window, longest, scale, softcap
    args.k_format, args.v_format, args.shares_pages = k_format, v_format, shares_pages
    return ctypes.byref(args)


def _lse_shape(q):
    """[batch, num_heads] or [batch, num_heads, q_len]. Whatever is refused has some shape too."""
    return (*q[:1], *q[-2:-1], *q[1:-2])


def attention_decode(
    q,
    k_pages,
    v_pages,
    seq_lens,
    *,
    page_table=None,
    out=None,
    lse=None,
    return_lse=False,
    scale=None,
    window=None,
    softcap=None,
    sinks=None,
    alibi_slopes=None,
    k_scales=None,
    v_scales=None,
    k_tail=None,
    tails=None,
    tree=None,
    blocks=None,
    num_blocks=None,
    keys=None,
    num_keys=None,
    longest=0,
    shares_pages=False,
    k_format=None,
    v_format=None,
):
    """softmax(scale q . k^T) . v for the newest tokens of every sequence, 1 to 16 of them.

    q [batch, num_heads, head_dim] or [batch, q_len, num_heads, head_dim]; k_pages and v_pages
    [num_pages, page_size, num_kv_heads, head_dim]; seq_lens int32 [batch] counts the tokens of each
    sequence, the newest included, 0 for an idle slot; page_table int32 [batch, max_pages], or None:
    sequence s has page s to itself. Query i of q_len stands at token seq_lens - q_len + i and sees
    the tokens up to itself, the last `window` of them if that is given.

    Pages in the type of q, float8_e4m3fn, float8_e5m2, int8, uint8 or packed i4, keys and values
    each in their own; bytes with k_format and v_format "e4m3", "e5m2" or "i4" where a framework
    lacks the type. k_scales and v_scales say what a code is worth: float32 [1] or [num_kv_heads]
    (FP8), float16 [num_pages, page_size, num_kv_heads, 1] (int8) or [..., 2] with the smallest
    value behind the scale (uint8, i4), or for i4 keys [num_pages, page_size / 32, num_kv_heads,
    head_dim, 2], with the newest tokens in k_tail [num_tails, 32, num_kv_heads, head_dim] and whose
    tail is whose in tails int32 [batch].

    softcap, sinks, alibi_slopes as in attention_prefill. tree: int32 [batch, q_len], bit j: the
    token sees new token j. blocks and keys: int32 lists of pages [batch, n] and of tokens [batch,
    q_len, n] that are seen, num_blocks and num_keys how many of them count. longest: the largest of
    seq_lens, if known; shares_pages: whether sequences have pages in common. Both may save time.

    Returns out; (out, lse) if lse is given or asked for by return_lse: float32 [batch, num_heads]
    or [batch, num_heads, q_len].
    """
    if out is None:
        out = empty_like("attention_decode", q)
    if lse is None and return_lse:
        shape = _lse_shape(shape_of("attention_decode", "q", q))
        lse = empty("attention_decode", q, shape, "f32", "lse")
    k_code = code_of(k_format, "attention_decode: k_format")
    v_code = code_of(v_format, "attention_decode: v_format")
    hints = (whole(longest or 0, "attention_decode: longest", low=-(2**63)), bool(shares_pages))
    window = whole(window or 0, "attention_decode: window", low=-(2**63))
    scalars = _scalars(window, *hints, scale or 0.0, softcap or 0.0, k_code, v_code)
    tensors = (q, k_pages, v_pages, out, seq_lens, page_table, k_scales, v_scales, k_tail, tails)
    tensors += (lse, sinks, alibi_slopes, tree, blocks, num_blocks, keys, num_keys)
    _attention_decode(tensors, scalars)
    return out if lse is None else (out, lse)
