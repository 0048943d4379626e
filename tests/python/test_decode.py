# Decode attention on NumPy arrays against float64: pages, formats, options, and what is refused.
# SPDX-License-Identifier: MIT
import numpy as np
import pytest
import tessera

BATCH, HEADS, KV_HEADS, D, PAGE, MAX_PAGES = 3, 6, 2, 16, 32, 3
LENS = np.int32([70, 0, 33])


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def table():
    order = np.random.default_rng(5).permutation(BATCH * MAX_PAGES + 2)
    return order[: BATCH * MAX_PAGES].astype("int32").reshape(BATCH, MAX_PAGES)


def attend(q, k, v, sees=lambda s, i, p, j: j <= p, sinks=None):
    """(out, lse) in float64; k and v are what pages are worth, q [batch, q_len, heads, d]."""
    pages, q_len = table(), q.shape[1]
    out, lse = np.zeros(q.shape), np.full((BATCH, HEADS, q_len), -np.inf)
    for s, i, h in np.ndindex(BATCH, q_len, HEADS):
        p = LENS[s] - q_len + i
        seen = [j for j in range(LENS[s]) if sees(s, i, p, j)]
        rows = [(pages[s, j // PAGE], j % PAGE) for j in seen]
        keys = np.array([k[page, row, h * KV_HEADS // HEADS] for page, row in rows])
        scores = keys @ q[s, i, h] / np.sqrt(D) if seen else np.zeros(0)
        extra = [] if sinks is None else [sinks[h]]
        all_scores = np.concatenate([scores, extra])
        if not len(all_scores):
            continue
        total = np.exp(all_scores).sum()
        lse[s, h, i] = np.log(total)
        for weight, (page, row) in zip(np.exp(scores) / total, rows):
            out[s, i, h] += weight * v[page, row, h * KV_HEADS // HEADS]
    return out, lse


@pytest.fixture
def cache():
    shape = (BATCH * MAX_PAGES + 2, PAGE, KV_HEADS, D)
    return normal(shape, 1).astype("float64"), normal(shape, 2).astype("float64")


@pytest.mark.parametrize("q_len", [None, 1, 4])
def test_pages_of_the_type_of_q(cache, q_len):
    q = normal((BATCH, q_len or 1, HEADS, D), 0)
    want, want_lse = attend(q, *cache)
    k, v = (x.astype("float32") for x in cache)
    given = q if q_len else q[:, 0]
    out, lse = tessera.attention_decode(given, k, v, LENS, page_table=table(), return_lse=True)
    np.testing.assert_allclose(out, want if q_len else want[:, 0], atol=1e-6)
    np.testing.assert_allclose(lse, want_lse if q_len else want_lse[..., 0], atol=1e-6)


def test_bytes_with_scales_by_row(cache):
    codes = np.random.default_rng(3).integers(-127, 128, cache[0].shape).astype("int8")
    scales = (np.random.default_rng(4).random((*codes.shape[:3], 1)) * 0.02).astype("float16")
    worth = codes.astype("float64") * scales.astype("float64")
    q = normal((BATCH, HEADS, D), 0)
    want, _ = attend(q[:, None], worth, worth)
    how = {"page_table": table(), "k_scales": scales, "v_scales": scales, "longest": 70}
    out = tessera.attention_decode(q, codes, codes, LENS, **how)
    np.testing.assert_allclose(out, want[:, 0], atol=1e-6)


def test_nibbles_with_scales_by_column_and_a_tail(cache):
    packed = np.random.default_rng(3).integers(0, 256, (*cache[0].shape[:3], D // 2), "uint8")
    codes = np.stack((packed & 15, packed >> 4), -1).reshape(cache[0].shape).astype("float64")
    by_row = normal((*codes.shape[:3], 2), 6).astype("float16")
    by_column = normal((codes.shape[0], PAGE // 32, KV_HEADS, D, 2), 7).astype("float16")
    tail, tails = normal((BATCH, 32, KV_HEADS, D), 8), np.int32([2, 0, 1])
    wide = by_column.astype("float64").repeat(32, 1)
    k = codes * wide[..., 0] + wide[..., 1]
    v = codes * by_row[..., :1].astype("float64") + by_row[..., 1:].astype("float64")
    for s in range(BATCH):
        for j in range((LENS[s] - 1) // 32 * 32, LENS[s]) if LENS[s] else ():
            k[table()[s, j // PAGE], j % PAGE] = tail[tails[s], j % 32]
    q = normal((BATCH, HEADS, D), 0)
    want, _ = attend(q[:, None], k, v)
    how = {"page_table": table(), "k_scales": by_column, "v_scales": by_row, "k_tail": tail}
    out = tessera.attention_decode(
        q, packed, packed, LENS, tails=tails, k_format="i4", v_format="i4", **how
    )
    np.testing.assert_allclose(out, want[:, 0], atol=2e-5)


def test_windows_trees_lists_and_sinks(cache):
    q, sinks = normal((BATCH, 3, HEADS, D), 0), normal(HEADS, 9)
    k, v = (x.astype("float32") for x in cache)
    words = np.int32([[1, 3, 5]] * BATCH)
    keys = np.int32([[[1, 31, 8, 20], [2, 3, 27, 0], [32, 31, 5, 5]]] * BATCH)
    counts = np.int32([[4, 3, 2]] * BATCH)

    def is_new_and_seen(s, i, p, j):
        first = p - i
        return j <= p if j < first else bool(words[s, i] >> (j - first) & 1)

    given = {"page_table": table()}
    calls = {
        "window": ({"window": 20}, lambda s, i, p, j: p - 20 < j <= p, None),
        "tree": ({"tree": words}, is_new_and_seen, None),
        "keys": ({"keys": keys, "num_keys": counts},
                 lambda s, i, p, j: j <= p and j in keys[s, i, : counts[s, i]], None),
        "sinks": ({"sinks": sinks}, lambda s, i, p, j: j <= p, sinks),
    }
    for name, (how, sees, its_sinks) in calls.items():
        want, _ = attend(q, *cache, sees, its_sinks)
        got = tessera.attention_decode(q, k, v, LENS, **given, **how)
        np.testing.assert_allclose(got, want, atol=1e-6, err_msg=name)


def test_one_page_a_sequence_without_a_table():
    k, v = normal((BATCH, 40, KV_HEADS, D), 1), normal((BATCH, 40, KV_HEADS, D), 2)
    q, lens = normal((BATCH, HEADS, D), 0), np.int32([40, 7, 0])
    out = tessera.attention_decode(q, k, v, lens, scale=0.25, softcap=2.0)
    assert (out[2] == 0).all()
    keys = k[1, :7].repeat(HEADS // KV_HEADS, 1).astype("float64")
    scores = 2 * np.tanh(0.25 * np.einsum("hd,jhd->hj", q[1], keys) / 2)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    values = v[1, :7].repeat(HEADS // KV_HEADS, 1).astype("float64")
    np.testing.assert_allclose(out[1], np.einsum("hj,jhd->hd", weights, values), atol=1e-6)


def test_refusals(cache):
    k, v = (x.astype("float32") for x in cache)
    q = normal((BATCH, HEADS, D), 0)
    with pytest.raises(tessera.Error, match="attention_decode: page_table"):
        tessera.attention_decode(q, k, v, LENS[:2], page_table=table())
    with pytest.raises(tessera.Error, match="attention_decode: k_format"):
        tessera.attention_decode(q, k, v, LENS, page_table=table(), k_format="nothing")
    assert not tessera.supports(tessera.attention_decode, q, k.astype("int8"), v, LENS)
