# attention_merge and attention_cascade over a KV cache; torch_cases.py lists the cases.
# SPDX-License-Identifier: MIT
"""Merging is compared with its formula in float64, a cascade with attention in float64 over what
the stored rows stand for and with attention_decode over all keys at once."""

import attention_reference as attention
import kv_reference as kv
import numpy as np
import tessera
import torch
from torch_attention_cases import RMS, ROUNDOFF, compare
from torch_check import assert_close, assert_same, normal, rounding
from torch_kv_cases import (
    LENS,
    NUM_PAGES,
    PAGE,
    SLACK,
    TABLE,
    TAILS,
    filled,
    spread,
    to_device,
    to_numpy,
)


def case_attention_merge(device, dtype):
    for shape in ((2, 3, 8, 64), (5, 2, 3, 4, 128), (1, 2, 1, 2, 24)):
        parts = normal(shape, device, dtype)
        lses = 8 * normal((*shape[:2], shape[-2], *shape[2:-2]), device, torch.float32, 1)
        lses[0, 0] = -np.inf
        want, want_lse = (
            torch.from_numpy(x).to(device) for x in attention.merge(to_numpy(parts), to_numpy(lses))
        )
        out, lse = tessera.attention_merge(parts, lses, return_lse=True)
        assert out.dtype == dtype
        bound = rounding(want, dtype) + 2.0**-18 * parts.double().abs().amax(0)
        assert_close(out, want, bound, f"{shape}")
        nothing = torch.isneginf(want_lse)
        assert_same(torch.isneginf(lse), nothing, f"{shape}: lse of what has seen nothing")
        got, wide = (x.masked_fill(nothing, 0) for x in (lse, want_lse))
        assert_close(got, wide, 2.0**-18 * (1 + wide.abs()), f"{shape}: lse")


SHARED = 96  # keys that all sequences begin with
CUTS = {1: ([[3, 0, 4]], [96]), 2: ([[3, 0], [4, -9]], [64, 32]), 3: ([[3], [0], [4]], [32] * 3)}


class Shared:
    """Keys and values of SHARED tokens in pages 3, 0 and 4 of 5, NaN in the others."""

    def __init__(self, heads, d, device, dtype):
        self.rows = [normal((SHARED, heads, d), device, dtype, seed) for seed in (11, 12)]
        self.pages = []
        for rows in self.rows:
            pages = rows.new_full((5, PAGE, heads, d), np.nan)
            pages[[3, 0, 4]] = rows.view(3, PAGE, heads, d)
            self.pages.append(pages)

    def cut(self, num_pieces):
        """(k_pages, v_pages, piece_lens), and their page table; None for a single page."""
        device = self.pages[0].device
        if num_pieces == 0:
            return (*(x[None] for x in self.rows), to_device(np.int32([SHARED]), device)), None
        table, lens = (to_device(np.int32(x), device) for x in CUTS[num_pieces])
        return (*self.pages, lens), table


def cascade_reference(q, shared, rows, slack=1, **how):
    """Allows twice the error of plain attention, because parts are merged, times `slack`."""
    keys = (*map(to_numpy, shared.rows), *rows, LENS)
    want = attention.attend_cascade(to_numpy(q), *keys, **how)
    return want._replace(error=2 * slack * want.error, lse_error=2 * slack * want.lse_error)


def check_cascade(cache, q, shared, rows, what, tails, **option):
    slack = max(SLACK[cache.k.kind], SLACK[cache.v.kind]) if q.is_cuda else 1
    # A GPU also rounds weights; on every device a part is rounded, and then the result.
    roundoff = (slack + 1 if q.is_cuda else 1) * ROUNDOFF[q.dtype]
    want = cascade_reference(q, shared, rows, slack, **option)
    how = cache.how(page_table=TABLE, return_lse=True, longest=150, **tails, **option)
    own = q, cache.k_pages, cache.v_pages, to_device(LENS, q.device)
    for num_pieces in (0, *CUTS):
        keys, table = shared.cut(num_pieces)
        got, lse = tessera.attention_cascade(*own, *keys, shared_page_table=table, **how)
        assert got.dtype == q.dtype
        where = f"{what} with {sorted(option)}, cut {num_pieces}"
        compare(got, lse, want, where, roundoff, slack * RMS[q.dtype])


def case_attention_cascade(device, dtype):
    """Own keys in several formats, shared ones in one piece or more."""
    sinks = np.random.default_rng(3).standard_normal(8).astype("float32")
    for kinds in (("plain", "plain"), ("e4m3", "e4m3"), ("int8", "int8"), (None, "i4")):
        for d, q_len in ((64, 1), (128, 3)):
            cache, shared = filled(kinds, 2, d, device, dtype), Shared(2, d, device, dtype)
            tails = {"tails": TAILS} if kinds[0] is None else {}
            rows = kv.gather(cache.k, TABLE, LENS, **tails), kv.gather(cache.v, TABLE, LENS)
            rows, q = [spread(x) for x in rows], normal((3, q_len, 8, d), device, dtype, 5)
            for option in ({}, {"softcap": 3.0, "sinks": sinks}):
                what = f"{kinds} {q_len} of {d}"
                check_cascade(cache, q, shared, rows, what, tails, **option)


def case_a_cascade_is_decode_attention(device, dtype):
    """Within a few roundings of attention_decode over shared and own keys together."""
    for d in (64, 128):
        cache, shared = filled(("plain", "plain"), 2, d, device, dtype), Shared(2, d, device, dtype)
        own = (cache.k_pages, cache.v_pages)
        pages = [torch.cat(both) for both in zip(own, shared.pages)]
        first = np.broadcast_to(np.int32([3, 0, 4]) + NUM_PAGES, (3, 3))
        tables = [to_device(x, device) for x in (np.hstack([first, TABLE]), TABLE)]
        lens, q = to_device(LENS, device), normal((3, 8, d), device, dtype, 5)
        want = tessera.attention_decode(q, *pages, lens + SHARED, page_table=tables[0])
        rows = [spread(kv.gather(pool, TABLE, LENS)) for pool in (cache.k, cache.v)]
        wide = cascade_reference(q[:, None], shared, rows)
        # Both sides round weights and results; the cascade also rounds parts.
        bound = torch.from_numpy(5 * ROUNDOFF[dtype] * wide.size + 2 * wide.error)[:, 0]
        for num_pieces in CUTS:
            keys, table = shared.cut(num_pieces)
            how = {"page_table": tables[1], "shared_page_table": table}
            got = tessera.attention_cascade(q, *own, lens, *keys, **how)
            assert_close(got, want.double(), bound.to(device), f"{d} in {num_pieces} pieces")
