# A paged KV cache: new tokens appended, pages copied, sequences read back.
# SPDX-License-Identifier: MIT
from functools import cache

from ._call import make_op, make_struct_op
from ._frameworks import code_of

_gather, _pack_gather = make_struct_op("kv_gather")
_copy_pages = make_op("kv_copy_pages")
_, _pack_append = make_struct_op("kv_append")


@cache
def _append(reads_k_scales, reads_v_scales):
    """The operation, for each choice of the scales that it only reads."""
    reads = "k_scales " * reads_k_scales + "v_scales " * reads_v_scales
    return make_op("kv_append", reads)


def _are_read(scales):
    """FP8 reads its scales, which have one axis; the other formats write one or two per row."""
    return len(getattr(scales, "shape", (0, 0))) == 1


def kv_append(
    k,
    v,
    slots,
    k_pages,
    v_pages,
    *,
    k_scales=None,
    v_scales=None,
    k_tail=None,
    tail_slots=None,
    rope_q=None,
    rope_positions=None,
    rope_table=None,
    rope_style="half_split",
    k_format=None,
    v_format=None,
):
    """Writes new tokens to a KV cache, in the format of its pages: (k_pages, v_pages).

    k and v [tokens, num_kv_heads, head_dim]; slots int32 or int64 [tokens]: page * page_size + row
    of each token, negative to skip it; k_pages and v_pages [num_pages, page_size, num_kv_heads,
    head_dim]. Pages in the dtype of k hold it as it is. Formats, k_scales and v_scales are those of
    attention_decode: FP8 divides by the scales it is given, the integer formats compute and write
    theirs. Keys in i4 with scales by column are kept in k_tail [num_tails, 32, num_kv_heads,
    head_dim] until there are 32, a token at tail_slots: tail * 32 + its place among the 32.

    With rope_q [tokens, num_heads, head_dim], rope_positions [tokens] and rope_table (all three),
    rope_q and k are first rotated in place, as by rope(rope_q, k, rope_positions, rope_table).

    A slot beyond the pages is refused on the CPU and ignored on a GPU.
    """
    scalars = _pack_append(rope_style, k_format, v_format)
    tensors = (k, v, slots, k_pages, v_pages, k_scales, v_scales, k_tail, tail_slots)
    tensors += (rope_q, rope_positions, rope_table)
    _append(_are_read(k_scales), _are_read(v_scales))(tensors, scalars)
    return k_pages, v_pages


def kv_gather(
    k_pages,
    v_pages,
    seq_lens,
    starts,
    k,
    v,
    *,
    page_table=None,
    k_scales=None,
    v_scales=None,
    k_tail=None,
    tails=None,
    k_format=None,
    v_format=None,
):
    """Reads sequences back from a KV cache into contiguous rows of k and v: (k, v).

    Token t of sequence s becomes row starts[s] + t of k and v [tokens, num_kv_heads, head_dim],
    float32, float16 or bfloat16; other rows keep their values. seq_lens and starts int32
    [batch]. The cache is given as to attention_decode.
    """
    scalars = _pack_gather(k_format, v_format)
    tensors = (k_pages, v_pages, seq_lens, starts, k, v, page_table, k_scales, v_scales)
    _gather((*tensors, k_tail, tails), scalars)
    return k, v


def kv_copy_pages(
    k_pages,
    v_pages,
    sources,
    targets,
    *,
    k_scales=None,
    v_scales=None,
    k_format=None,
    v_format=None,
):
    """Copies page sources[i] to page targets[i], of keys and values: (k_pages, v_pages).

    sources and targets int32 [count]; no page is a target twice, or both target and source.
    k_scales and v_scales are copied too if they have an entry per page; leave out FP8 scales.
    If keys have 4 bits and values 8 or the other way round, say so by k_format or v_format "i4".
    """
    k_code = code_of(k_format, "kv_copy_pages: k_format")
    v_code = code_of(v_format, "kv_copy_pages: v_format")
    _copy_pages((k_pages, v_pages, sources, targets, k_scales, v_scales), k_code, v_code)
    return k_pages, v_pages
