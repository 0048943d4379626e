# Attention in float64 NumPy, and the error that float scores and sums may have.
# SPDX-License-Identifier: MIT
"""One sequence at a time: q [q_len, num_heads, d_k], k and v [kv_len, num_kv_heads, d]. A score
errs by (d_k + 8) 2^-23 of the sum of its products' magnitudes. Its weight errs by as much, relative
to the weight, and once more through the sum of all weights, which errs by 2^-23 per key. Quantised
values and weights rounded to a narrow type add to that: see `bound`."""

from typing import NamedTuple

import numpy as np
import numpy_reference as ref

STEP = 2.0**-23


class Attended(NamedTuple):
    out: np.ndarray  # [q_len, num_heads, d_v]
    lse: np.ndarray  # [num_heads, q_len]
    size: np.ndarray  # like out: the sum of weights times magnitudes of v
    error: np.ndarray  # like out, of the float computation, before the last rounding
    lse_error: np.ndarray  # like lse

    def bound(self, dtype, weight_roundoff=0.0):
        return self.error + weight_roundoff * self.size + ref.rounding(self.out, dtype)


def visible(q_len, kv_len, causal=False, window=None, intervals=None):
    """bool [q_len, kv_len]: the rule of the header."""
    left, right = window or (None, None)
    position = np.arange(q_len)[:, None] + kv_len - q_len
    key = np.arange(kv_len)[None, :]
    seen = np.ones((q_len, kv_len), bool)
    if causal or right is not None:
        seen &= key <= position + (0 if causal else right)
    if left is not None:
        seen &= key >= position - left
    if intervals is not None:
        begin, end = np.asarray(intervals)[..., 0], np.asarray(intervals)[..., 1]
        inside = (key[..., None] >= begin[:, None]) & (key[..., None] < end[:, None])
        seen &= inside.any(-1)
    return seen


def attend(q, k, v, *, scale=None, softcap=None, sinks=None, alibi_slopes=None, **mask):
    q, k, v = (ref.wide(x).swapaxes(0, 1) for x in (q, k, v))
    num_heads, q_len, d_k = q.shape
    kv_len = k.shape[1]
    k, v = (np.repeat(x, num_heads // len(x), 0) for x in (k, v))
    scale = scale or d_k**-0.5
    score = scale * (q @ k.swapaxes(1, 2))
    error = (d_k + 8) * STEP * scale * (np.abs(q) @ np.abs(k).swapaxes(1, 2))
    if softcap:
        score = softcap * np.tanh(score / softcap)
        error = error + 8 * STEP * softcap
    if alibi_slopes is not None:
        apart = np.abs(np.arange(q_len)[:, None] + kv_len - q_len - np.arange(kv_len)[None, :])
        penalty = ref.wide(alibi_slopes)[:, None, None] * apart
        score = score - penalty
        error = error + 2 * STEP * penalty
    seen = visible(q_len, kv_len, **mask)
    error = np.where(seen, error + 2 * STEP * np.abs(score), 0).max(-1, initial=0)
    score = np.where(seen, score, -np.inf)
    sink = np.full((num_heads, q_len, 1), -np.inf)
    if sinks is not None:
        sink[:] = ref.wide(sinks)[:, None, None]
    every = np.concatenate([score, sink], -1)
    largest = every.max(-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    total = np.exp(every - largest).sum(-1)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + largest[..., 0]
    weight = np.exp(score - largest) / np.where(total > 0, total, 1)[..., None]
    size = weight @ np.abs(v)
    spread = (2 * error + (kv_len + 32) * STEP)[..., None]
    finite = np.where(np.isfinite(lse), np.abs(lse), 0)
    return Attended(
        (weight @ v).swapaxes(0, 1),
        lse,
        size.swapaxes(0, 1),
        (spread * size).swapaxes(0, 1),
        error + (kv_len + 32) * STEP + 4 * STEP * finite,
    )


def attend_batch(q, k, v, *, kv_lens=None, intervals=None, **how):
    """q [batch, q_len, ...] as in the operation; the result also has a batch axis."""
    each = []
    for s in range(len(q)):
        n = k.shape[1] if kv_lens is None else int(kv_lens[s])
        own = None if intervals is None else intervals[s]
        each.append(attend(q[s], k[s, :n], v[s, :n], intervals=own, **how))
    return Attended(*(np.stack(field) for field in zip(*each)))


def attend_ragged(q, k, v, *, q_starts, kv_starts, intervals=None, **how):
    each = []
    for s in range(len(q_starts) - 1):
        queries = slice(int(q_starts[s]), int(q_starts[s + 1]))
        keys = slice(int(kv_starts[s]), int(kv_starts[s + 1]))
        own = None if intervals is None else intervals[queries]
        each.append(attend(q[queries], k[keys], v[keys], intervals=own, **how))
    out, lse, size, error, lse_error = zip(*each)
    return Attended(
        np.concatenate(out),
        np.concatenate(lse, -1),
        np.concatenate(size),
        np.concatenate(error),
        np.concatenate(lse_error, -1),
    )


def attend_cascade(q, shared_k, shared_v, k, v, own_lens, **how):
    """Every query over all of shared_k [tokens, ...], then over those of its own k up to itself."""
    keys, values = (
        np.concatenate([np.broadcast_to(shared, (len(q), *shared.shape)), own], 1)
        for shared, own in ((shared_k, k), (shared_v, v))
    )
    seen = own_lens[:, None] - q.shape[1] + 1 + np.arange(q.shape[1])
    end = len(shared_k) + np.maximum(seen, 0)
    intervals = np.stack([np.zeros_like(end), end], -1)[:, :, None]
    lens = len(shared_k) + own_lens
    return attend_batch(q, keys, values, kv_lens=lens, intervals=intervals, **how)


def merge(parts, part_lses):
    """(out, lse) of attention over parts of the keys, in the layout of attention_merge."""
    parts, lses = ref.wide(parts), ref.wide(part_lses)
    largest = lses.max(0)
    weight = np.exp(lses - np.where(np.isfinite(largest), largest, 0))
    total = weight.sum(0)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + np.where(np.isfinite(largest), largest, 0)
    weight = weight / np.where(total > 0, total, 1)
    if parts.ndim == 5:
        weight = weight.swapaxes(-1, -2)
    return np.where(weight[..., None] > 0, weight[..., None] * parts, 0).sum(0), lse


def paged(x, lens, page_size, seed=0):
    """(pages, table) of x [batch, kv_len, ...]: shuffled, NaN or bytes 255 where no token lies."""
    x = np.asarray(x)
    batch, kv_len = x.shape[:2]
    max_pages = -(-kv_len // page_size) + 1  # one entry more than any sequence has
    num_pages = batch * max_pages + 3
    pages = np.full((num_pages, page_size, *x.shape[2:]), 255 if x.dtype == np.uint8 else np.nan)
    pages = pages.astype(x.dtype)
    order = np.random.default_rng(seed).permutation(num_pages)
    table = np.full((batch, max_pages), -(2**30), np.int32)
    for s in range(batch):
        for page in range(-(-int(lens[s]) // page_size)):
            table[s, page] = order[s * max_pages + page]
            tokens = x[s, page * page_size : min((page + 1) * page_size, int(lens[s]))]
            pages[table[s, page], : len(tokens)] = tokens
    return pages, table


def paged_ragged(x, starts, page_size, seed=0):
    """The same of x [tokens, ...]."""
    lens = np.diff(starts)
    spread = np.zeros((len(lens), max(int(lens.max(initial=0)), 1), *x.shape[1:]), x.dtype)
    for s, n in enumerate(lens):
        spread[s, :n] = x[starts[s] : starts[s + 1]]
    return paged(spread, lens, page_size, seed)


def documents(q_len, kv_len, batch, causal):
    """Two intervals per query: the first keys, which all see, and the ten of its document."""
    position = np.arange(q_len) + kv_len - q_len
    begin = position // 10 * 10
    own = np.stack([begin, position + 1 if causal else begin + 10], -1)
    shared = np.broadcast_to([-2, 3], own.shape)
    each = np.stack([shared, own], -2).astype(np.int32, order="C")
    return np.broadcast_to(each, (batch, q_len, 2, 2))


FEATURES = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (9, None), "causal": True},
    "both sides": {"window": (4, 3)},
    "left": {"window": (0, None)},
    "behind": {"window": (None, 2)},
    "scale": {"scale": 0.3, "causal": True},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": True, "causal": True},
    "alibi": {"alibi_slopes": True},
    "all": {"window": (20, 1), "softcap": 3.0, "sinks": True, "alibi_slopes": True},
    "intervals": {"intervals": True},
    "intervals and bounds": {"intervals": True, "causal": True, "window": (15, None)},
}


def features(name, q_len, kv_len, num_heads, batch):
    """Arguments of attention_prefill, with arrays where FEATURES says True."""
    how = dict(FEATURES[name])
    if how.get("sinks"):
        how["sinks"] = np.random.default_rng(3).standard_normal(num_heads).astype(np.float32)
    if how.get("alibi_slopes"):
        how["alibi_slopes"] = 2.0 ** -np.arange(1, num_heads + 1, dtype=np.float32)
    if how.get("intervals"):
        how["intervals"] = documents(q_len, kv_len, batch, how.get("causal"))
    return how
