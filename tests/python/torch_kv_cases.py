# The KV cache in every format, and decode attention over it; torch_cases.py lists the cases.
# SPDX-License-Identifier: MIT
"""Codes, scales, tails and rotated values have the same bits on every device, so they are compared
with kv_reference.py or with the CPU without a bound. Attention is compared with float64 over what
the stored rows stand for, within the bounds of attention_reference.py."""

import attention_reference as attention
import kv_reference as kv
import numpy as np
import tessera
import torch
from torch_attention_cases import RMS, ROUNDOFF, compare, on_device
from torch_check import FP8, assert_same, normal

# Formats of (keys, values): the same for both, then some with two different ones.
KINDS = [(kind, kind) for kind in kv.FORMATS]
KINDS += [("e4m3", "e5m2"), ("int8", "uint8"), ("i4", "e4m3"), ("uint8", "i4")]
PAGE, NUM_PAGES = 32, 16
TABLE = np.int32([[4, 11, 1, 7, 13], [0, 6, -9, -9, -9], [2, 9, 5, 3, -9]])
LENS = np.int32([150, 0, 97])
STARTS = np.int32([100, 0, 2])  # first row of each sequence in the gathered tensor
TAILS = np.int32([2, 0, 1])


def to_numpy(x):
    return x.float().cpu().numpy()


def to_device(x, device, dtype=None):
    return None if x is None else torch.from_numpy(x.copy()).to(device, dtype)


class Cache:
    """A pool of keys and one of values, as tensors, beside the arrays they should equal."""

    def __init__(self, k, v, device, dtype, is_head_first=False):
        self.k, self.v, self.dtype = k, v, dtype
        self.k_pages, self.v_pages = (self.pages(pool).to(device) for pool in (k, v))
        if is_head_first:
            pages = (x.transpose(1, 2).contiguous() for x in (self.k_pages, self.v_pages))
            self.k_pages, self.v_pages = (x.transpose(1, 2) for x in pages)
        self.k_scales, self.v_scales = (to_device(pool.scales, device) for pool in (k, v))
        self.k_tail = to_device(getattr(k, "tail", None), device, dtype)

    def pages(self, pool):
        return to_device(pool.pages, "cpu", self.dtype if pool.kind == "plain" else None)

    def how(self, **others):
        formats = {"k_format": kv.argument(self.k.kind), "v_format": kv.argument(self.v.kind)}
        given = {"k_scales": self.k_scales, "v_scales": self.v_scales, "k_tail": self.k_tail}
        return {**given, **formats, **on_device(others, self.k_pages.device)}

    def check(self, what):
        for name, pool in (("k", self.k), ("v", self.v)):
            pages, scales = (getattr(self, f"{name}_{part}") for part in ("pages", "scales"))
            assert_same(pages.cpu(), self.pages(pool), f"{what}: {name}_pages")
            if scales is not None:
                assert_same(scales.cpu(), torch.from_numpy(pool.scales), f"{what}: {name}_scales")
        if self.k_tail is not None:
            assert_same(self.k_tail.cpu(), to_device(self.k.tail, "cpu", self.dtype), what)


def pools(kinds, heads, d):
    fp8_scales = np.float32([0.5, 2.0, 0.03])[:heads]
    return [kv.Pool(kind, (NUM_PAGES, PAGE, heads, d), fp8_scales) for kind in kinds]


def slots_of(begin, end):
    """Slots and tail slots of tokens begin[s] to end[s] of every sequence."""
    runs = [np.arange(b, e) for b, e in zip(begin, end)]
    slots = np.concatenate([kv.slots_of(TABLE, PAGE, s, run) for s, run in enumerate(runs)])
    tails = np.concatenate([TAILS[s] * 32 + run % 32 for s, run in enumerate(runs)])
    return slots.astype("int64"), tails.astype("int32")


def append(cache, slots, tail_slots=None, seed=0):
    """Appends new tokens to the cache and, by plain loops, to the reference."""
    heads, d = cache.v_pages.shape[2], cache.v_pages.shape[3] * kv.FORMATS[cache.v.kind][1]
    device = cache.k_pages.device
    k, v = (normal((len(slots), heads, d), device, cache.dtype, seed + i) for i in range(2))
    has_tail = tail_slots is not None
    cache.k.append(to_numpy(k), slots, *([tail_slots] if has_tail else []))
    cache.v.append(to_numpy(v), slots)
    how = cache.how(**({"tail_slots": tail_slots} if has_tail else {}))
    slots = to_device(slots, device)
    result = tessera.kv_append(k, v, slots, cache.k_pages, cache.v_pages, **how)
    assert result[0] is cache.k_pages and result[1] is cache.v_pages


def filled(kinds, heads, d, device, dtype):
    """A cache that holds sequences of LENS tokens; k by column where its kind is None."""
    k, v = pools((kinds[0] or "i4", kinds[1]), heads, d)
    begin = [0, 0, 0]
    if kinds[0]:
        cache = Cache(k, v, device, dtype)
        append(cache, slots_of(begin, LENS)[0])
        return cache
    cache = Cache(kv.ColumnPool((NUM_PAGES, PAGE, heads, d), 3), v, device, dtype)
    for i, end in enumerate(([20, 0, 33], [33, 0, 64], LENS)):
        append(cache, *slots_of(begin, end), seed=2 * i)
        begin = end
    return cache


def case_kv_append(device, dtype):
    slots = np.int32([40, -1, 3, NUM_PAGES * PAGE - 1, 0, 41, -7])
    for kinds in KINDS:
        for heads, d, is_head_first in ((3, 64, False), (2, 128, True), (1, 24, False)):
            cache = Cache(*pools(kinds, heads, d), device, dtype, is_head_first)
            append(cache, slots)
            cache.check(f"{kinds} {heads} heads of {d}, head first {is_head_first}")


def case_kv_append_by_column(device, dtype):
    for d in (64, 128, 24):
        filled((None, "int8"), 2, d, device, dtype).check(f"columns of {d}")


def case_kv_append_of_fp8_types(device, dtype):
    """Pages of PyTorch's FP8 types hold the same bytes as uint8 pages with a format."""
    k, v = (normal((5, 2, 64), device, dtype, seed) * 100 for seed in range(2))
    slots = torch.tensor([3, 1, 4, 0, 2], device=device)
    for kind in FP8:
        pages = [torch.zeros(1, 8, 2, 64, device=device, dtype=kind) for _ in range(2)]
        tessera.kv_append(k, v, slots, *pages)
        name = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[str(kind).rpartition(".")[2]]
        for tokens, got in zip((k, v), pages):
            want = kv.Pool(name, (1, 8, 2, 64))
            want.pages[:] = 0
            want.append(to_numpy(tokens), slots.cpu().numpy())
            assert_same(got.view(torch.uint8).cpu(), torch.from_numpy(want.pages), str(kind))


def case_kv_append_rotates(device, dtype):
    """Equals rope followed by kv_append, on this device and on the CPU."""
    positions, slots = torch.tensor([5, 0, 31, 7]), torch.tensor([9, 33, -1, 100])
    for style in ("half_split", "interleaved"):
        for d, rotary_dim in ((64, 64), (128, 32), (24, 24)):
            table = tessera.make_rope_table(32, rotary_dim, like=slots)
            q, k, v = (normal((4, n, d), "cpu", dtype, n) for n in (6, 3, 2))
            k = k[:, :2].contiguous()
            given = [x.to(device).clone() for x in (q, k, v)]
            want, got = (Cache(*pools(("plain", "uint8"), 2, d), x, dtype) for x in ("cpu", device))
            tessera.rope(q, k, positions, table, style=style)
            tessera.kv_append(k, v, slots, want.k_pages, want.v_pages, **want.how())
            rope = {"rope_positions": positions.to(device), "rope_table": table.to(device)}
            rope.update(rope_q=given[0], rope_style=style)
            pages = got.k_pages, got.v_pages
            tessera.kv_append(given[1], given[2], slots.to(device), *pages, **got.how(), **rope)
            what = f"{style} {rotary_dim} of {d}"
            assert_same(given[0].cpu(), q, f"{what}: q")
            assert_same(given[1].cpu(), k, f"{what}: k")
            for name in ("k_pages", "v_pages", "v_scales"):
                assert_same(getattr(got, name).cpu(), getattr(want, name), f"{what}: {name}")


def case_kv_gather(device, dtype):
    for kinds in (*KINDS, (None, "i4")):
        for heads, d in ((2, 64), (1, 24)):
            cache = filled(kinds, heads, d, device, dtype)
            for out_dtype in {dtype, torch.float32}:
                out = [torch.full((260, heads, d), 9, dtype=out_dtype) for _ in range(2)]
                got = [x.to(device) for x in out]
                tails = {"tails": TAILS} if kinds[0] is None else {}
                how = cache.how(page_table=TABLE, **tails)
                where = to_device(LENS, device), to_device(STARTS, device)
                tessera.kv_gather(cache.k_pages, cache.v_pages, *where, *got, **how)
                for have, want, pool, of in zip(got, out, (cache.k, cache.v), (tails, {})):
                    rows = torch.from_numpy(kv.gather(pool, TABLE, LENS, **of)).to(out_dtype)
                    want[100:250], want[2:99] = rows[:150], rows[150:]
                    assert_same(have.cpu(), want, f"{kinds} {heads} heads of {d} as {out_dtype}")


def case_kv_copy_pages(device, dtype):
    sources, targets = np.int32([4, 0, 4, 2]), np.int32([3, 5, 1, 15])
    for kinds in KINDS:
        for is_head_first in (False, True):
            cache = Cache(*pools(kinds, 2, 64), device, dtype, is_head_first)
            append(cache, slots_of([0, 0, 0], LENS)[0])
            how = cache.how()
            del how["k_tail"]
            for name, pool in (("k_scales", cache.k), ("v_scales", cache.v)):
                pool.copy(sources, targets)
                if pool.kind in kv.FP8:
                    del how[name]  # which belongs to heads, and to no page
            lists = to_device(sources, device), to_device(targets, device)
            tessera.kv_copy_pages(cache.k_pages, cache.v_pages, *lists, **how)
            cache.check(f"{kinds} head first {is_head_first}")


OPTIONS = {
    "plain": {},
    "window": {"window": 20},
    "others": {"softcap": 3.0, "sinks": True, "alibi_slopes": True},
}


def decode_options(name, num_heads):
    """(arguments of attention_decode, those of the reference)"""
    how = dict(OPTIONS[name])
    if how.get("sinks"):
        how["sinks"] = np.random.default_rng(3).standard_normal(num_heads).astype("float32")
        how["alibi_slopes"] = 2.0 ** -np.arange(1, num_heads + 1, dtype="float32")
    window = how.get("window")
    return how, {**how, "window": window and (window - 1, None), "causal": True}


def spread(rows):
    """Rows of all sequences as [batch, longest, heads, d]."""
    out = np.zeros((len(LENS), LENS.max(), *rows.shape[1:]))
    for s, first in enumerate(np.cumsum(LENS) - LENS):
        out[s, : LENS[s]] = rows[first : first + LENS[s]]
    return out


# How many times the error bound of plain keys and values a GPU may need. It multiplies q and
# weights by codes first and applies scale and low afterwards, so terms may cancel.
SLACK = {"plain": 1, "e4m3": 2, "e5m2": 2, "int8": 2, "uint8": 8, "i4": 8}


def check_decode(cache, q, rows, option, what, **tails):
    given, asked = decode_options(option, q.shape[2])
    want = attention.attend_batch(to_numpy(q), *rows, kv_lens=LENS, **asked)
    lens, how = to_device(LENS, q.device), cache.how(page_table=TABLE, **tails, **given)
    got, lse = tessera.attention_decode(
        q, cache.k_pages, cache.v_pages, lens, longest=150, return_lse=True, **how
    )
    assert got.dtype == q.dtype
    slack, roundoff = 1, 0.0
    if q.is_cuda:
        slack = max(SLACK[cache.k.kind], SLACK[cache.v.kind])
        roundoff = slack * ROUNDOFF[q.dtype]
        want = want._replace(error=slack * want.error, lse_error=slack * want.lse_error)
    compare(got, lse, want, what, roundoff, slack * RMS[q.dtype])


def case_attention_decode(device, dtype):
    for kinds in (*KINDS, (None, "i4")):
        for d, q_len in ((64, 1), (128, 3), (24, 2)):
            cache = filled(kinds, 2, d, device, dtype)
            tails = {"tails": TAILS} if kinds[0] is None else {}
            rows = kv.gather(cache.k, TABLE, LENS, **tails), kv.gather(cache.v, TABLE, LENS)
            rows = [spread(x) for x in rows]
            q = normal((3, q_len, 8, d), device, dtype, 5)
            for option in OPTIONS:
                what = f"{kinds} {q_len} of {d} {option}"
                check_decode(cache, q, rows, option, what, **tails)


def case_registered_kv_operations(device, dtype):
    """torch.ops.tessera gives and writes what the package does."""
    if not hasattr(torch.library, "custom_op"):
        return
    import tessera.torch  # noqa: F401

    ops, (slots, _) = torch.ops.tessera, slots_of([0, 0, 0], LENS)
    k, v = (normal((len(slots), 2, 64), device, dtype, seed) for seed in range(2))
    q = normal((3, 8, 64), device, dtype, 5)
    slots, lens, starts = (to_device(x, device) for x in (slots, LENS, STARTS))
    sources, targets = (to_device(np.int32(x), device) for x in ([4, 0], [3, 5]))
    given = []
    for where in (ops, tessera):
        cache = Cache(*pools(("int8", "i4"), 2, 64), device, dtype)
        pages, how = (cache.k_pages, cache.v_pages), cache.how()
        del how["k_tail"]
        where.kv_append(k, v, slots, *pages, **how)
        where.kv_copy_pages(*pages, sources, targets, **how)
        how["page_table"] = to_device(TABLE, device)
        rows = [torch.zeros(260, 2, 64, device=device, dtype=dtype) for _ in range(2)]
        where.kv_gather(*pages, lens, starts, *rows, **how)
        out = where.attention_decode(q, *pages, lens, **how, longest=150, shares_pages=True)
        given.append((*pages, cache.k_scales, cache.v_scales, *rows, out))
    for got, want in zip(*given):
        assert_same(got, want, "torch.ops.tessera")
        assert want.any()
