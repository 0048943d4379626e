# Attention: of whole prompts, of the newest tokens over a KV cache, and of keys in parts.
# SPDX-License-Identifier: MIT
from ._call import dtype_of, empty, empty_like, make_struct_op, names_stream, shape_of
from ._frameworks import canonical, code_of
from ._library import Error, whole
from ._operations import ATTENTION_BOUNDS, DTYPES

_prefill, _pack_prefill = make_struct_op("attention_prefill")
_decode, _pack_decode = make_struct_op("attention_decode")
_merge, _pack_merge = make_struct_op("attention_merge")
_cascade, _pack_cascade = make_struct_op("attention_cascade")
_LEFT, _RIGHT = ATTENTION_BOUNDS["left"], ATTENTION_BOUNDS["right"]


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
    """q with the head size of v; tensors that the operation will refuse must not raise here."""
    return (*q[:-1], *v[-1:])


def _prefill_lse_shape(q):
    """[batch, num_heads, q_len] or, ragged, [num_heads, tokens]."""
    return (*q[:-3], *q[-2:-1], *q[-3:-2])


def _out_dtype(q, format, dtype):
    """The canonical name of the type attention makes: q's, or bf16 of codes."""
    if dtype is not None:
        return canonical(dtype, "attention_prefill: dtype")
    name = dtype_of("attention_prefill", "q", q)
    is_e4m3 = name == "e4m3" or code_of(format, "attention_prefill: format") == DTYPES["e4m3"]
    return "bf16" if is_e4m3 else name


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
    may have any stride: q.transpose(1, 2) of a tensor [batch, num_heads, q_len, d] is fine.

    The last query is at the position of the last key. causal: a query sees no later keys. window:
    (left, right), how many keys before and after its own a query sees, None for all. intervals:
    int32 [batch, q_len, n, 2] or [tokens, n, 2] with n 1 or 2: keys [begin, end) that a query sees.
    softcap c: scores become c tanh(score / c). sinks, alibi_slopes: float32 [num_heads].
    float8_e4m3fn (or bytes with format "e4m3"): q_scale, k_scale, v_scale are float32 [batch,
    num_kv_heads], and dtype says "bfloat16" (the default) or "float16" for the result;
    sums_in_float sums blocks of keys in float: slower, for where the GPU's FP8 sums are too coarse.

    Returns out; (out, lse) if lse is given or asked for by return_lse: the logarithm of the sum of
    exponentials, float32 [batch, num_heads, q_len] or [num_heads, tokens].
    """
    left, right = _bounds(causal, window)
    if out is None:
        shapes = (shape_of("attention_prefill", name, x) for name, x in (("q", q), ("v", v)))
        out = empty("attention_prefill", q, _out_shape(*shapes), _out_dtype(q, format, dtype))
    if lse is None and return_lse:
        shape = _prefill_lse_shape(shape_of("attention_prefill", "q", q))
        lse = empty("attention_prefill", q, shape, "f32", "lse")
    bounds = (_LEFT if left >= 0 else 0) | (_RIGHT if right >= 0 else 0)
    numbers = (dropout_seed, dropout_rate, scale, softcap, bounds, format, sums_in_float)
    scalars = _pack_prefill(max(left, 0), max(right, 0), *numbers)
    tensors = (q, k, v, out, lse, intervals, sinks, alibi_slopes, q_starts, kv_starts, kv_lens)
    tensors += (k_page_table, v_page_table, q_scale, k_scale, v_scale)
    _prefill(tensors, scalars)
    return out if lse is None else (out, lse)


def _decode_lse_shape(q):
    """[batch, num_heads] or [batch, num_heads, q_len]; a q of another rank must not raise here."""
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
    lacks the type. k_scales and v_scales turn codes into values: float32 [1] or [num_kv_heads]
    (FP8), float16 [num_pages, page_size, num_kv_heads, 1] (int8) or [..., 2] with the smallest
    value behind the scale (uint8, i4), or for i4 keys [num_pages, page_size / 32, num_kv_heads,
    head_dim, 2], with the newest tokens in k_tail [num_tails, 32, num_kv_heads, head_dim] and the
    tail of each sequence in tails int32 [batch].

    softcap, sinks, alibi_slopes as in attention_prefill. tree: int32 [batch, q_len], bit j: the
    token sees new token j. blocks and keys: int32 lists of pages [batch, n] and of tokens [batch,
    q_len, n] that are seen; num_blocks and num_keys: how many entries are valid. longest: the
    largest of seq_lens, if known; shares_pages: sequences have pages in common. Both may save time.

    Returns out; (out, lse) if lse is given or asked for by return_lse: float32 [batch, num_heads]
    or [batch, num_heads, q_len].
    """
    if out is None:
        out = empty_like("attention_decode", q)
    if lse is None and return_lse:
        shape = _decode_lse_shape(shape_of("attention_decode", "q", q))
        lse = empty("attention_decode", q, shape, "f32", "lse")
    numbers = (scale, softcap, k_format, v_format, shares_pages)
    scalars = _pack_decode(window, longest, *numbers)
    tensors = (q, k_pages, v_pages, out, seq_lens, page_table, k_scales, v_scales, k_tail, tails)
    tensors += (lse, sinks, alibi_slopes, tree, blocks, num_blocks, keys, num_keys)
    _decode(tensors, scalars)
    return out if lse is None else (out, lse)


def attention_merge(parts, part_lses, *, out=None, lse=None, return_lse=False):
    """Attention over all keys, from the results of attention over disjoint parts of them.

    parts [num_parts, batch, num_heads, d] or [num_parts, batch, q_len, num_heads, d], and the lse
    of each, float32 [num_parts, batch, num_heads] or [num_parts, batch, num_heads, q_len], as
    attention_decode and attention_prefill give them. With lse = log(sum(exp(part_lses))), the
    result is the sum of exp(part_lses - lse) * parts. A part with an lse of -inf has seen no key
    and has no weight; if no part has seen a key, out is zeros and lse -inf.

    Returns out, of the shape of one part; (out, lse) if lse is given or asked for by return_lse.
    """
    if out is None:
        shape = shape_of("attention_merge", "parts", parts)[1:]
        dtype = dtype_of("attention_merge", "parts", parts)
        out = empty("attention_merge", parts, shape, dtype)
    if lse is None and return_lse:
        shape = shape_of("attention_merge", "part_lses", part_lses)[1:]
        lse = empty("attention_merge", parts, shape, "f32", "lse")
    _merge((parts, part_lses, out, lse), _pack_merge())
    return out if lse is None else (out, lse)


def _scratch(q, piece_lens, parts, part_lses):
    """(parts, part_lses): one part per piece and one for the sequences' own keys."""
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
    """attention_decode for sequences that begin with the same keys, which are read only once.

    q, k_pages, v_pages, seq_lens, page_table and the options are those of attention_decode, for the
    keys after the shared ones: lengths, lists and the tree count only those. There is no window and
    no alibi_slopes: every query sees every shared key. The tokens of q have one stride.

    The shared keys are cut into pieces, which are read in parallel and merged in order; a piece
    should have about a thousand keys. piece_lens int32 [num_pieces] has their lengths.
    shared_k_pages and shared_v_pages [num_pages, page_size, num_kv_heads, head_dim] are of the type
    of q, and may be k_pages and v_pages; shared_page_table int32 [num_pieces, max_pages], or None:
    piece n is page n, and there are no other pages. The result depends on the cut into pieces.

    parts and part_lses are scratch memory, allocated if they are None: contiguous, of shape
    (num_pieces + 1, *q.shape) in the type of q, and (num_pieces + 1, *q.shape[:-1]) in float32.

    Returns out; (out, lse) if lse is given or asked for by return_lse, as attention_decode does.
    """
    if out is None:
        out = empty_like("attention_cascade", q)
    if lse is None and return_lse:
        shape = _decode_lse_shape(shape_of("attention_cascade", "q", q))
        lse = empty("attention_cascade", q, shape, "f32", "lse")
    parts, part_lses = _scratch(q, piece_lens, parts, part_lses)
    scalars = _pack_cascade(longest, scale, softcap, k_format, v_format)
    tensors = (q, k_pages, v_pages, out, seq_lens, page_table, k_scales, v_scales, k_tail, tails)
    tensors += (lse, sinks, tree, blocks, num_blocks, keys, num_keys, shared_k_pages)
    tensors += (shared_v_pages, shared_page_table, piece_lens, parts, part_lses)
    _cascade(tensors, scalars)
    return out if lse is None else (out, lse)
