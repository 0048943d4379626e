# A paged KV cache: new tokens appended, pages copied, sequences read back.
# SPDX-License-Identifier: MIT
import ctypes
from functools import cache, lru_cache

from ._call import make_op, make_struct_op
from ._dtypes import code_of
from ._library import KvAppendArgs, KvGatherArgs
from ._rope import style_code

_gather = make_struct_op("kv_gather", KvGatherArgs, "k v")
_copy_pages = make_op(
    "kv_copy_pages",
    "k_pages v_pages sources targets k_scales v_scales",
    "k_pages v_pages k_scales v_scales",
)


@cache
def _append(is_rotated, has_new_k_scales, has_new_v_scales):
    """The operation, by what it writes beside the pages."""
    writes = "k_pages v_pages k_tail"
    writes += " k rope_q" * is_rotated + " k_scales" * has_new_k_scales
    return make_struct_op("kv_append", KvAppendArgs, writes + " v_scales" * has_new_v_scales)


def _are_written(scales):
    """FP8 reads its scales, one in all or one a head; other formats write one or two a row."""
    return len(getattr(scales, "shape", (0, 0))) != 1


@lru_cache(maxsize=256)
def _scalars(struct, k_format, v_format, rope_style=0):
    """A pointer to the struct of a call without its tensors; the library copies it."""
    args = struct(struct_size=ctypes.sizeof(struct), k_format=k_format, v_format=v_format)
    if rope_style:
        args.rope_style = rope_style
    return ctypes.byref(args)


def _codes(op, k_format, v_format):
    return code_of(k_format, f"{op}: k_format"), code_of(v_format, f"{op}: v_format")


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

    A slot beyond the pages is refused on the CPU and passed over on a GPU.
    """
    is_rotated = rope_q is not None
    style = style_code(rope_style, "kv_append: rope_style")
    scalars = _scalars(KvAppendArgs, *_codes("kv_append", k_format, v_format), style)
    tensors = (k, v, slots, k_pages, v_pages, k_scales, v_scales, k_tail, tail_slots)
    tensors += (rope_q, rope_positions, rope_table)
    _append(is_rotated, _are_written(k_scales), _are_written(v_scales))(tensors, scalars)
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
    """Reads sequences back from a KV cache, into rows of k and v that lie together: (k, v).

    Token t of sequence s becomes row starts[s] + t of k and v [tokens, num_kv_heads, head_dim],
    float32, float16 or bfloat16; their other rows are left alone. seq_lens and starts int32
    [batch]. The cache is given as to attention_decode.
    """
    scalars = _scalars(KvGatherArgs, *_codes("kv_gather", k_format, v_format))
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

    sources and targets int32 [count]; no target is also a source, or given twice. k_scales and
    v_scales: those with a part for every page, which are copied too; FP8 has none to give. Pages
    of 4 bits beside pages of 8 need k_format or v_format "i4", so that their sizes agree.
    """
    codes = _codes("kv_copy_pages", k_format, v_format)
    _copy_pages((k_pages, v_pages, sources, targets, k_scales, v_scales), *codes)
    return k_pages, v_pages
