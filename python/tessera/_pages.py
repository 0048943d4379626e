# Keys and values of one layer in pages of a KV format, for PyTorch.
# SPDX-License-Identifier: MIT
"""What the caches of tessera.hf and tessera.compat are made of."""

from typing import NamedTuple, Optional

import torch

import tessera

from . import _torch_ops as ops
from ._library import Error

GROUP = 32  # tokens whose columns share a scale


class _Format(NamedTuple):
    """include/tessera/ops/kv_format.h, as far as pages of PyTorch need it."""

    bits: int
    scales: str  # "none", "head", "row", "column"
    num_scales: int  # of a row or column
    code: Optional[str]  # what bytes hold, where PyTorch's dtype does not say it
    values: str  # the format of values beside such keys


FORMATS = {
    "plain": _Format(0, "none", 0, None, "plain"),
    "e4m3": _Format(8, "head", 1, "e4m3", "e4m3"),
    "e5m2": _Format(8, "head", 1, "e5m2", "e5m2"),
    "int8": _Format(8, "row", 1, None, "int8"),
    "uint8": _Format(8, "row", 2, None, "uint8"),
    "int4": _Format(4, "column", 2, "i4", "int4_token"),
    "int4_token": _Format(4, "row", 2, "i4", "int4_token"),
}


class Pages:
    """k and v [num_pages, page_size, num_kv_heads, head_dim] in a format, with scales and tails."""

    def __init__(
        self, num_pages, page_size, num_kv_heads, head_dim, *, kv="plain", dtype=torch.float32,
        device=None, num_tails=0,
    ):
        if kv not in FORMATS:
            raise Error(f"kv is {kv!r}; want one of {', '.join(FORMATS)}")
        if kv == "int4" and page_size % GROUP:
            raise Error(f"page_size is {page_size}; kv int4 wants a multiple of {GROUP}")
        self.kv, self.dtype, self.device = kv, dtype, device
        self.num_pages, self.page_size = num_pages, page_size
        self.num_kv_heads, self.head_dim = num_kv_heads, head_dim
        self.k_format, self.v_format = FORMATS[kv], FORMATS[FORMATS[kv].values]
        self.k, self.k_scales = self._storage(self.k_format, kv)
        self.v, self.v_scales = self._storage(self.v_format, self.k_format.values)
        self.tail = None
        if self.k_format.scales == "column":
            shape = (num_tails, GROUP, num_kv_heads, head_dim)
            self.tail = torch.zeros(shape, dtype=dtype, device=device)

    def _storage(self, form, name):
        shape = [self.num_pages, self.page_size, self.num_kv_heads, self.head_dim]
        make = {"device": self.device}
        if form.bits == 0:
            return torch.zeros(shape, dtype=self.dtype, **make), None
        if form.bits == 4:
            shape[-1] //= 2
        kind = torch.int8 if name == "int8" else torch.uint8
        codes = torch.zeros(shape, dtype=kind, **make)
        if form.scales == "head":
            return codes, torch.ones(self.num_kv_heads, dtype=torch.float32, **make)
        if form.scales == "row":
            sizes = (*shape[:3], form.num_scales)
        else:
            sizes = (shape[0], self.page_size // GROUP, self.num_kv_heads, self.head_dim, 2)
        return codes, torch.zeros(sizes, dtype=torch.float16, **make)

    @property
    def num_bytes(self):
        """Of codes, scales and tails."""
        tensors = (self.k, self.v, self.k_scales, self.v_scales, self.tail)
        return sum(t.numel() * t.element_size() for t in tensors if t is not None)

    def _forms(self):
        codes = {"k_format": self.k_format.code, "v_format": self.v_format.code}
        return {"k_scales": self.k_scales, "v_scales": self.v_scales, **codes}

    def append(self, k, v, slots, tail_slots=None, rope=None):
        """Writes k and v [tokens, num_kv_heads, head_dim] to slots: page * page_size + row."""
        tails = {} if self.tail is None else {"k_tail": self.tail, "tail_slots": tail_slots}
        ops.kv_append(k, v, slots, self.k, self.v, rope=rope, **self._forms(), **tails)

    def gather(self, seq_lens, longest, page_table, tails=None):
        """k and v [batch, longest, num_kv_heads, head_dim]; rows behind a sequence are zeros."""
        batch = len(seq_lens)
        shape = (batch * longest, self.num_kv_heads, self.head_dim)
        k, v = (torch.zeros(shape, dtype=self.dtype, device=self.k.device) for _ in range(2))
        starts = torch.arange(batch, dtype=torch.int32, device=self.k.device) * longest
        more = {} if self.tail is None else {"k_tail": self.tail, "tails": tails}
        ops.kv_gather(
            self.k, self.v, seq_lens, starts, k, v, page_table=page_table, **self._forms(), **more
        )
        return tuple(x.view(batch, longest, *shape[1:]) for x in (k, v))

    def decode(self, q, seq_lens, page_table, tails=None, **options):
        """Attention of the newest tokens q [batch, q_len, num_heads, head_dim], up to 16 each."""
        more = {} if self.tail is None else {"k_tail": self.tail, "tails": tails}
        return ops.attention_decode(
            q, self.k, self.v, seq_lens, page_table=page_table, **self._forms(), **more, **options
        )

    def copy(self, sources, targets):
        """Copies pages, with their scales."""
        scales = {}
        if self.k_format.scales in ("row", "column"):
            scales = {"k_scales": self.k_scales, "v_scales": self.v_scales}
        tessera.kv_copy_pages(
            self.k, self.v, sources, targets, **scales, k_format=self.k_format.code,
            v_format=self.v_format.code,
        )


class Places(NamedTuple):
    """Where the next tokens of a batch go, and how long its sequences are with them."""

    slots: torch.Tensor  # int64 [batch * tokens]
    tail_slots: torch.Tensor  # the same in tails
    lens: torch.Tensor  # int32 [batch]
    longest: int  # at least the largest of lens


class Schedule:
    """The places of a step, computed once for all layers of a cache.

    `fixed` are the places of a step that is recorded to be replayed: they are computed on the
    device from a counter, so that a replay at another length writes elsewhere.
    """

    def __init__(self):
        self.fixed: Optional[Places] = None
        self._key, self._places = None, None

    def next(self, pages, tokens):
        """For `tokens` more of each sequence."""
        if self.fixed is not None:
            return self.fixed
        key = (pages.batch, pages.room, pages.rows.device, pages.length, tokens)
        if ops.is_tracing():
            return self._compute(pages, tokens)
        if key != self._key:
            self._key, self._places = key, self._compute(pages, tokens)
        return self._places

    @staticmethod
    def _compute(pages, tokens):
        end = pages.length + tokens
        places = torch.arange(pages.length, end, device=pages.rows.device)
        return pages.places_at(places, torch.full_like(pages.rows, end), end)


class SequencePages(Pages):
    """Pages of a fixed batch, each sequence with pages of its own for `max_len` tokens."""

    def __init__(
        self, batch, max_len, num_kv_heads, head_dim, *, page_size=32, schedule=None, **more
    ):
        self.batch, self.max_len = batch, max_len
        self.pages_each = -(-max_len // page_size)
        self.room = self.pages_each * page_size  # rows of a sequence
        super().__init__(
            batch * self.pages_each, page_size, num_kv_heads, head_dim, num_tails=batch, **more
        )
        self.length = 0
        self.schedule = schedule or Schedule()
        device = self.k.device
        self.rows = torch.arange(batch, device=device, dtype=torch.int32)
        table = torch.arange(self.num_pages, device=device, dtype=torch.int32)
        self.table = table.view(batch, self.pages_each)

    def places_at(self, positions, lens, longest):
        """The places of tokens at `positions` (int64 [tokens]) of every sequence."""
        first = self.rows.to(torch.int64)[:, None]
        slots = (first * self.room + positions).reshape(-1)
        tail_slots = (first * GROUP + positions % GROUP).reshape(-1)
        return Places(slots, tail_slots, lens, longest)

    def extend(self, k, v, rope=None):
        """The next tokens of every sequence: k and v [batch, tokens, num_kv_heads, head_dim].

        rope: (q, positions, table) of q [batch * tokens, num_heads, head_dim]; q and k are rotated
        in place. Returns the places, for `attend`.
        """
        batch, tokens = k.shape[:2]
        if batch != self.batch:
            raise Error(f"the cache has {self.batch} sequences and got {batch}; reset it first")
        if self.length + tokens > self.max_len:
            raise Error(
                f"the cache holds {self.max_len} tokens of a sequence, {self.length} are there and "
                f"{tokens} more came; make it longer"
            )
        places = self.schedule.next(self, tokens)
        flat = (x.reshape(-1, self.num_kv_heads, self.head_dim) for x in (k, v))
        tail_slots = None if self.tail is None else places.tail_slots
        self.append(*flat, places.slots, tail_slots, rope)
        if self.schedule.fixed is None:
            self.length += tokens
        return places

    def whole(self):
        """k and v [batch, length, num_kv_heads, head_dim]; views if the format is plain."""
        if self.schedule.fixed is not None:
            raise Error("a step that is recorded cannot read the whole cache")
        if self.kv == "plain":
            shape = (self.batch, -1, self.num_kv_heads, self.head_dim)
            return tuple(x.view(shape)[:, : self.length] for x in (self.k, self.v))
        lens = torch.full_like(self.rows, self.length)
        return self.gather(lens, self.length, self.table, self.rows)

    def attend(self, q, places, **options):
        """Attention of the tokens that `extend` has added."""
        options["longest"] = places.longest
        return self.decode(q, places.lens, self.table, self.rows, **options)

    def select(self, indices):
        """Sequence i becomes what sequence indices[i] was."""
        by_page = (indices[:, None] * self.pages_each + torch.arange(
            self.pages_each, device=indices.device)).reshape(-1)
        for tensor in (self.k, self.v, self.k_scales, self.v_scales):
            if tensor is not None and tensor.shape[0] == self.num_pages and tensor.dim() > 1:
                tensor.copy_(tensor[by_page])
        if self.tail is not None:
            self.tail.copy_(self.tail[indices])
