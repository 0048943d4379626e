# Attention over parts of the keys made one, and that of sequences which begin with the same keys.
# SPDX-License-Identifier: MIT
import ctypes
from functools import lru_cache

from ._call import dtype_of, empty, empty_like, make_struct_op, names_stream, shape_of, whole
from ._decode import _lse_shape
from ._dtypes import code_of
from ._library import CascadeAttentionArgs, Error, MergeAttentionArgs

_attention_merge = make_struct_op("attention_merge", MergeAttentionArgs, "out lse")
_attention_cascade = make_struct_op(
    "attention_cascade", CascadeAttentionArgs, "out lse parts part_lses"
)

# The struct of a call without its tensors, as a pointer; the library copies it.
_NO_SCALARS = ctypes.byref(MergeAttentionArgs(struct_size=ctypes.sizeof(MergeAttentionArgs)))


@lru_cache(maxsize=256)
def _scalars(longest, scale, softcap, k_format, v_format):
    """The same of attention_cascade."""
    args = CascadeAttentionArgs(struct_size=ctypes.sizeof(CascadeAttentionArgs))
    args.longest, args.scale, args.softcap = longest, scale, softcap
    args.k_format, args.v_format = k_format, v_format
    return ctypes.byref(args)


def attention_merge(parts, part_lses, *, out=None, lse=None, return_lse=False):
    """Attention over all keys, from attention over parts of them that have no key in common.

    parts [num_parts, batch, num_heads, d] or [num_parts, batch, q_len, num_heads, d], and the lse
    of each, float32 [num_parts, batch, num_heads] or [num_parts, batch, num_heads, q_len], as
    attention_decode and attention_prefill give them. With lse = log(sum(exp(part_lses))), the
    result is the sum of exp(part_lses - lse) * parts. A part with an lse of -inf has seen no key
    and counts for nothing; if none has seen one, out is zeros and lse -inf.

    Returns out, of the shape of one part; (out, lse) if lse is given or asked for by return_lse.
    """
    if out is None:
        shape = shape_of("attention_merge", "parts", parts)[1:]
        dtype = dtype_of("attention_merge", "parts", parts)
        out = empty("attention_merge", parts, shape, dtype)
    if lse is None and return_lse:
        shape = shape_of("attention_merge", "part_lses", part_lses)[1:]
        lse = empty("attention_merge", parts, shape, "f32", "lse")
    _attention_merge((parts, part_lses, out, lse), _NO_SCALARS)
    return out if lse is None else (out, lse)


def _scratch(q, piece_lens, parts, part_lses):
    """(parts, part_lses): a part for each piece and one for the own keys, made where absent."""
    if parts is not None and part_lses is not None:
        return parts, part_lses
    if names_stream():
        raise Error(
            "attention_cascade: parts or part_lses is None and `using` names a stream, whose work "
            "may go on when they are freed: pass both"
        )
    num_pieces = sum(shape_of("attention_cascade", "piece_lens", piece_lens)[:1])
    shape = (num_pieces + 1, *shape_of("attention_cascade", "q", q))
    if parts is None:
        dtype = dtype_of("attention_cascade", "q", q)
        parts = empty("attention_cascade", q, shape, dtype, "parts")
    if part_lses is None:
        part_lses = empty("attention_cascade", q, shape[:-1], "f32", "part_lses")
    return parts, part_lses


def attention_cascade(
    q,
    k_pages,
    v_pages,
    seq_lens,
    shared_k_pages,
    shared_v_pages,
    piece_lens,
    *,
    page_table=None,
    shared_page_table=None,
    out=None,
    lse=None,
    return_lse=False,
    scale=None,
    softcap=None,
    sinks=None,
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
    k_format=None,
    v_format=None,
    parts=None,
    part_lses=None,
):
    """attention_decode of sequences that begin with the same keys, which are read once for all.

    q, k_pages, v_pages, seq_lens, page_table and the options are those of attention_decode, for the
    keys behind the shared ones: lengths, lists and the tree count those alone. There is no window
    and no alibi_slopes: every query sees every shared key. Tokens of q lie evenly apart.

    The shared keys come in pieces, which are read side by side and then folded in their order;
    about a thousand keys are worth a piece. piece_lens int32 [num_pieces] counts them.
    shared_k_pages and shared_v_pages [num_pages, page_size, num_kv_heads, head_dim] are of the type
    of q, and may be k_pages and v_pages; shared_page_table int32 [num_pieces, max_pages], or None:
    piece n is page n, and there are no other pages. A result depends on how the pieces are cut.

    parts and part_lses are scratch memory, made for the call where they are None: contiguous,
    num_pieces + 1 times the elements of q in its type, and as many times its heads in float32.

    Returns out; (out, lse) if lse is given or asked for by return_lse, as attention_decode does.
    """
    if out is None:
        out = empty_like("attention_cascade", q)
    if lse is None and return_lse:
        shape = _lse_shape(shape_of("attention_cascade", "q", q))
        lse = empty("attention_cascade", q, shape, "f32", "lse")
    parts, part_lses = _scratch(q, piece_lens, parts, part_lses)
    k_code = code_of(k_format, "attention_cascade: k_format")
    v_code = code_of(v_format, "attention_cascade: v_format")
    longest = whole(longest or 0, "attention_cascade: longest", low=-(2**63))
    scalars = _scalars(longest, scale or 0.0, softcap or 0.0, k_code, v_code)
    tensors = (q, k_pages, v_pages, out, seq_lens, page_table, k_scales, v_scales, k_tail, tails)
    tensors += (lse, sinks, tree, blocks, num_blocks, keys, num_keys, shared_k_pages)
    tensors += (shared_v_pages, shared_page_table, piece_lens, parts, part_lses)
    _attention_cascade(tensors, scalars)
    return out if lse is None else (out, lse)
