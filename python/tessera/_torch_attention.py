# Attention and the KV cache as torch.ops.tessera.
# SPDX-License-Identifier: MIT
import torch

import tessera as _tessera

from . import _attention, _decode
from ._dtypes import CODES, canonical
from ._torch_register import register, storage


def _optional(names):
    return ", ".join(f"Tensor? {name}=None" for name in names)


# Those of tessera.attention_prefill, with window as its two sizes.
_PREFILL_TENSORS = (
    "intervals sinks alibi_slopes q_starts kv_starts kv_lens k_page_table v_page_table "
    "q_scale k_scale v_scale".split()
)
_PREFILL = (
    f"(Tensor q, Tensor k, Tensor v, {_optional(_PREFILL_TENSORS)}, *, float? scale=None, "
    "bool causal=False, int? left=None, int? right=None, float? softcap=None, "
    "bool sums_in_float=False, float dropout_rate=0.0, int dropout_seed=0, str? dtype=None, "
    "str? format=None)"
)


def _attention_prefill(q, k, v, *tensors, left=None, right=None, **how):
    how.update(zip(_PREFILL_TENSORS, tensors))
    return _tessera.attention_prefill(q, k, v, window=(left, right), **how)


def _attention_prefill_lse(*tensors, **how):
    return _attention_prefill(*tensors, return_lse=True, **how)


def _fake_prefill(q, k, v, *_tensors, dtype=None, format=None, **_how):
    code = format and CODES[canonical(format)]
    shape = _attention._out_shape(q.shape, v.shape)
    return q.new_empty(shape, dtype=storage(_attention._out_dtype(q, code, dtype)))


def _fake_prefill_lse(q, *tensors, **how):
    lse = q.new_empty(_attention._lse_shape(q.shape), dtype=torch.float32)
    return _fake_prefill(q, *tensors, **how), lse


attention_prefill = register(
    "attention_prefill", _PREFILL + " -> Tensor", _attention_prefill, _fake_prefill
)
attention_prefill_lse = register(
    "attention_prefill_lse",
    _PREFILL + " -> (Tensor, Tensor)",
    _attention_prefill_lse,
    _fake_prefill_lse,
)

# Those of tessera.attention_decode. `longest` grows from step to step, and may be symbolic.
_CACHE_TENSORS = "page_table k_scales v_scales k_tail tails".split()
_DECODE_TENSORS = (
    *_CACHE_TENSORS,
    *"sinks alibi_slopes tree blocks num_blocks keys num_keys".split(),
)
_FORMATS = "str? k_format=None, str? v_format=None"
_DECODE = (
    "(Tensor q, Tensor k_pages, Tensor v_pages, Tensor seq_lens, "
    f"{_optional(_DECODE_TENSORS)}, *, float? scale=None, int? window=None, float? softcap=None, "
    f"SymInt longest=0, bool shares_pages=False, {_FORMATS})"
)


def _attention_decode(q, k_pages, v_pages, seq_lens, *tensors, **how):
    how.update(zip(_DECODE_TENSORS, tensors))
    return _tessera.attention_decode(q, k_pages, v_pages, seq_lens, **how)


def _attention_decode_lse(*tensors, **how):
    return _attention_decode(*tensors, return_lse=True, **how)


def _fake_decode(q, *_tensors, **_how):
    return q.new_empty(q.shape)


def _fake_decode_lse(q, *_tensors, **_how):
    return q.new_empty(q.shape), q.new_empty(_decode._lse_shape(q.shape), dtype=torch.float32)


attention_decode = register(
    "attention_decode", _DECODE + " -> Tensor", _attention_decode, _fake_decode
)
attention_decode_lse = register(
    "attention_decode_lse",
    _DECODE + " -> (Tensor, Tensor)",
    _attention_decode_lse,
    _fake_decode_lse,
)

_MERGE = "(Tensor parts, Tensor part_lses)"


def _attention_merge_lse(parts, part_lses):
    return _tessera.attention_merge(parts, part_lses, return_lse=True)


def _fake_merge(parts, _part_lses):
    return parts.new_empty(parts.shape[1:])


def _fake_merge_lse(parts, part_lses):
    return _fake_merge(parts, part_lses), part_lses.new_empty(part_lses.shape[1:])


attention_merge = register(
    "attention_merge", _MERGE + " -> Tensor", _tessera.attention_merge, _fake_merge
)
attention_merge_lse = register(
    "attention_merge_lse",
    _MERGE + " -> (Tensor, Tensor)",
    _attention_merge_lse,
    _fake_merge_lse,
)

# Those of tessera.attention_cascade. Scratch memory is made in the call, or given and written.
_CASCADE_TENSORS = (
    *_CACHE_TENSORS,
    *"sinks tree blocks num_blocks keys num_keys shared_page_table".split(),
)
_CASCADE = (
    "(Tensor q, Tensor k_pages, Tensor v_pages, Tensor seq_lens, Tensor shared_k_pages, "
    f"Tensor shared_v_pages, Tensor piece_lens, {_optional(_CASCADE_TENSORS)}, "
    "Tensor(a!)? parts=None, Tensor(b!)? part_lses=None, *, float? scale=None, "
    f"float? softcap=None, SymInt longest=0, {_FORMATS})"
)


def _attention_cascade(q, k_pages, v_pages, seq_lens, shared_k, shared_v, lens, *tensors, **how):
    how.update(zip((*_CASCADE_TENSORS, "parts", "part_lses"), tensors))
    shared = shared_k, shared_v, lens
    return _tessera.attention_cascade(q, k_pages, v_pages, seq_lens, *shared, **how)


def _attention_cascade_lse(*tensors, **how):
    return _attention_cascade(*tensors, return_lse=True, **how)


attention_cascade = register(
    "attention_cascade", _CASCADE + " -> Tensor", _attention_cascade, _fake_decode
)
attention_cascade_lse = register(
    "attention_cascade_lse",
    _CASCADE + " -> (Tensor, Tensor)",
    _attention_cascade_lse,
    _fake_decode_lse,
)


def _fake_nothing(*_tensors, **_how):
    """Of an operation that only writes to what it is given."""


# Scales of FP8 are read and no more, but a schema cannot tell them from those that are written.
_APPEND_TENSORS = "k_scales v_scales k_tail tail_slots".split()
_APPEND_OPTIONAL = (
    "Tensor(c!)? k_scales=None, Tensor(d!)? v_scales=None, Tensor(e!)? k_tail=None, "
    "Tensor? tail_slots=None"
)


def _kv_append(k, v, slots, k_pages, v_pages, *tensors, **how):
    how.update(zip(_APPEND_TENSORS, tensors))
    _tessera.kv_append(k, v, slots, k_pages, v_pages, **how)


def _kv_append_rope(k, v, slots, k_pages, v_pages, rope_q, positions, table, *tensors, **how):
    how.update(rope_q=rope_q, rope_positions=positions, rope_table=table)
    _kv_append(k, v, slots, k_pages, v_pages, *tensors, **how)


def _kv_gather(k_pages, v_pages, seq_lens, starts, k, v, *tensors, **how):
    how.update(zip(_CACHE_TENSORS, tensors))
    _tessera.kv_gather(k_pages, v_pages, seq_lens, starts, k, v, **how)


def _kv_copy_pages(k_pages, v_pages, sources, targets, k_scales=None, v_scales=None, **how):
    how.update(k_scales=k_scales, v_scales=v_scales)
    _tessera.kv_copy_pages(k_pages, v_pages, sources, targets, **how)


kv_append = register(
    "kv_append",
    "(Tensor k, Tensor v, Tensor slots, Tensor(a!) k_pages, Tensor(b!) v_pages, "
    f"{_APPEND_OPTIONAL}, *, {_FORMATS}) -> ()",
    _kv_append,
    _fake_nothing,
)
# An operation of its own, because it writes k, too.
kv_append_rope = register(
    "kv_append_rope",
    "(Tensor(f!) k, Tensor v, Tensor slots, Tensor(a!) k_pages, Tensor(b!) v_pages, "
    f"Tensor(g!) rope_q, Tensor rope_positions, Tensor rope_table, {_APPEND_OPTIONAL}, *, "
    f'str rope_style="half_split", {_FORMATS}) -> ()',
    _kv_append_rope,
    _fake_nothing,
)
kv_gather = register(
    "kv_gather",
    "(Tensor k_pages, Tensor v_pages, Tensor seq_lens, Tensor starts, Tensor(a!) k, Tensor(b!) v, "
    f"{_optional(_CACHE_TENSORS)}, *, {_FORMATS}) -> ()",
    _kv_gather,
    _fake_nothing,
)
kv_copy_pages = register(
    "kv_copy_pages",
    "(Tensor(a!) k_pages, Tensor(b!) v_pages, Tensor sources, Tensor targets, "
    f"Tensor(c!)? k_scales=None, Tensor(d!)? v_scales=None, *, {_FORMATS}) -> ()",
    _kv_copy_pages,
    _fake_nothing,
)
