# The KV cache on NumPy arrays against loops over tokens: formats bit by bit, and what is refused.
# SPDX-License-Identifier: MIT
import copy

import kv_reference as kv
import numpy as np
import pytest
import tessera

HEADS, D, PAGE, NUM_PAGES, BATCH = 3, 16, 32, 7, 3
SHAPE = (NUM_PAGES, PAGE, HEADS, D)
TABLE = np.int32([[4, 1], [0, 6], [2, -5]])
LENS = np.int32([50, 64, 3])
FP8_SCALES = np.float32([0.5, 2.0, 0.03])


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def pools(k_kind, v_kind):
    return [kv.Pool(kind, SHAPE, FP8_SCALES.copy()) for kind in (k_kind, v_kind)]


def formats(k, v):
    given = {"k_scales": k.scales, "v_scales": v.scales}
    return {**given, "k_format": kv.argument(k.kind), "v_format": kv.argument(v.kind)}


def assert_same(got, want, what):
    for name in ("pages", "scales", "tail"):
        a, b = getattr(got, name, None), getattr(want, name, None)
        assert (a is None) == (b is None) and (a is None or a.dtype == b.dtype), f"{what}: {name}"
        if a is not None:
            np.testing.assert_array_equal(a, b, f"{what}: {name}")


def all_tokens():
    """The slots of every token, sequence after sequence."""
    slots = [kv.slots_of(TABLE, PAGE, s, np.arange(n)) for s, n in enumerate(LENS)]
    return np.concatenate(slots).astype("int64")


@pytest.mark.parametrize("v_kind", kv.FORMATS)
@pytest.mark.parametrize("k_kind", kv.FORMATS)
def test_tokens_are_written_in_the_formats_of_their_pages(k_kind, v_kind):
    slots = np.int32([40, -1, 3, NUM_PAGES * PAGE - 1, 0, 41, -7])
    new_k, new_v = normal((7, HEADS, D), 1) * 3, normal((7, HEADS, D), 2)
    new_k[0, 0] = 0  # smallest and largest are equal
    new_v[2, 1] = -1e-9
    new_v[3, 2, 5] = 1e6  # too large for FP8 and for a float16 scale
    got, want = pools(k_kind, v_kind), pools(k_kind, v_kind)
    want[0].append(new_k, slots)
    want[1].append(new_v, slots)
    pages = got[0].pages, got[1].pages
    result = tessera.kv_append(new_k, new_v, slots, *pages, **formats(*got))
    assert result[0] is pages[0] and result[1] is pages[1]
    assert_same(got[0], want[0], "keys")
    assert_same(got[1], want[1], "values")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_stored_as_nan(bad):
    x = np.float32([[[bad, 1, -2, 4]]])
    for kind in set(kv.FORMATS) - {"plain"}:
        got, want = (kv.Pool(kind, (1, 1, 1, 4), np.float32([1])) for _ in range(2))
        want.append(x, [0])
        other = got.pages.copy(), None if got.scales is None else got.scales.copy()
        how = {**formats(got, got), "v_scales": other[1]}
        tessera.kv_append(x, x.copy(), np.int64([0]), got.pages, other[0], **how)
        assert_same(got, want, kind)


def rotated(x, angles, style):
    """Pairs of elements turned, in float64; x [tokens, heads, d], angles [tokens, d / 2]."""
    x, half = x.astype("float64"), x.shape[-1] // 2
    first, second = slice(half), slice(half, None)
    if style == "interleaved":
        first, second = slice(0, None, 2), slice(1, None, 2)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


@pytest.mark.parametrize("style", ["half_split", "interleaved"])
def test_queries_and_keys_are_rotated_on_the_way(style):
    q, k, v = normal((4, 6, D), 1), normal((4, HEADS, D), 2), normal((4, HEADS, D), 3)
    positions, slots = np.int32([5, 0, 31, 7]), np.int64([9, 33, -1, 100])
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    want_q, want_k = rotated(q, angles, style), rotated(k, angles, style)
    (keys, values), (_, want_values) = pools("plain", "int8"), pools("plain", "int8")
    table = tessera.make_rope_table(32, D)
    rope = {"rope_q": q, "rope_positions": positions, "rope_table": table, "rope_style": style}
    how = formats(keys, values)
    tessera.kv_append(k, v, slots, keys.pages, values.pages, **how, **rope)
    np.testing.assert_allclose(q, want_q, atol=2e-6)
    np.testing.assert_allclose(k, want_k, atol=2e-6)
    want = np.full(SHAPE, 7, "float32")
    want[0, 9], want[1, 1], want[3, 4] = k[0], k[1], k[3]
    np.testing.assert_array_equal(keys.pages, want)
    want_values.append(v, slots)
    assert_same(values, want_values, "values, which are not rotated")


@pytest.mark.parametrize("v_kind", kv.FORMATS)
@pytest.mark.parametrize("k_kind", kv.FORMATS)
def test_sequences_are_read_back(k_kind, v_kind):
    k, v = pools(k_kind, v_kind)
    new_k, new_v = normal((LENS.sum(), HEADS, D), 1), normal((LENS.sum(), HEADS, D), 2)
    k.append(new_k, all_tokens())
    v.append(new_v, all_tokens())
    want = [kv.gather(pool, TABLE, LENS) for pool in (k, v)]
    starts = np.int32([70, 2, 66])  # in another order, with rows left out
    got = [np.full((125, HEADS, D), 9, "float32") for _ in range(2)]
    result = tessera.kv_gather(
        k.pages, v.pages, LENS, starts, *got, page_table=TABLE, **formats(k, v)
    )
    assert result[0] is got[0] and result[1] is got[1]
    firsts = np.cumsum(LENS) - LENS
    for have, expected in zip(got, want):
        spread = np.full_like(have, 9)
        for s, n in enumerate(LENS):
            spread[starts[s] : starts[s] + n] = expected[firsts[s] : firsts[s] + n]
        np.testing.assert_array_equal(have, spread)


def test_rows_are_rounded_to_the_type_of_the_result():
    k, v = pools("i4", "plain")
    k.append(normal((LENS.sum(), HEADS, D), 1), all_tokens())
    got = [np.zeros((LENS.sum(), HEADS, D), "float16") for _ in range(2)]
    starts = np.int32([0, 50, 114])
    tessera.kv_gather(k.pages, v.pages, LENS, starts, *got, page_table=TABLE, **formats(k, v))
    np.testing.assert_array_equal(got[0], kv.gather(k, TABLE, LENS).astype("float16"))


def test_without_a_table_a_sequence_is_a_page():
    k, v = normal((2, 5, HEADS, D), 1), normal((2, 5, HEADS, D), 2)
    got = [np.zeros((7, HEADS, D), "float32") for _ in range(2)]
    tessera.kv_gather(k, v, np.int32([5, 2]), np.int32([0, 5]), *got)
    for have, pages in zip(got, (k, v)):
        np.testing.assert_array_equal(have, np.concatenate((pages[0], pages[1, :2])))


def test_keys_by_column_pass_through_a_tail():
    """Tokens come in chunks that end in the middle of a group, on it and behind it."""
    k, v = kv.ColumnPool(SHAPE, BATCH), kv.Pool("i4", SHAPE)
    want_k, want_v = copy.deepcopy(k), copy.deepcopy(v)
    tails, begin = np.int32([2, 0, 1]), np.zeros(BATCH, int)
    for seed, ends in enumerate(([20, 1, 0], [32, 40, 3], [33, 63, 3], [50, 64, 3])):
        runs = [np.arange(begin[s], ends[s]) for s in range(BATCH)]
        slots = np.concatenate([kv.slots_of(TABLE, PAGE, s, run) for s, run in enumerate(runs)])
        tail_slots = np.concatenate([tails[s] * 32 + run % 32 for s, run in enumerate(runs)])
        new_k, new_v = (normal((len(slots), HEADS, D), 10 * seed + i) for i in range(2))
        want_k.append(new_k, slots, tail_slots)
        want_v.append(new_v, slots)
        how = {**formats(k, v), "k_tail": k.tail, "tail_slots": tail_slots.astype("int32")}
        tessera.kv_append(new_k, new_v, slots.astype("int64"), k.pages, v.pages, **how)
        assert_same(k, want_k, f"keys up to {ends}")
        assert_same(v, want_v, f"values up to {ends}")
        begin = np.array(ends)
    got = [np.zeros((LENS.sum(), HEADS, D), "float32") for _ in range(2)]
    how = {**formats(k, v), "k_tail": k.tail, "tails": tails, "page_table": TABLE}
    tessera.kv_gather(k.pages, v.pages, LENS, np.int32([0, 50, 114]), *got, **how)
    np.testing.assert_array_equal(got[0], kv.gather(want_k, TABLE, LENS, tails))
    np.testing.assert_array_equal(got[1], kv.gather(want_v, TABLE, LENS))


@pytest.mark.parametrize("kinds", [("plain", "plain"), ("i4", "int8"), ("uint8", "e4m3")])
def test_pages_are_copied_with_their_scales(kinds):
    k, v = pools(*kinds)
    k.append(normal((LENS.sum(), HEADS, D), 1), all_tokens())
    v.append(normal((LENS.sum(), HEADS, D), 2), all_tokens())
    want = copy.deepcopy((k, v))
    sources, targets = np.int32([4, 0, 4]), np.int32([3, 5, 1])
    for pool in want:
        pool.copy(sources, targets)
    how = formats(k, v)
    if kinds[1] in kv.FP8:
        del how["v_scales"]  # one per head, so pages have none
    result = tessera.kv_copy_pages(k.pages, v.pages, sources, targets, **how)
    assert result[0] is k.pages and result[1] is v.pages
    assert_same(k, want[0], "keys")
    assert_same(v, want[1], "values")


def test_decode_reads_what_was_appended():
    """All keys are equal, so a query returns the mean of the stored values."""
    k, v = pools("int8", "uint8")
    new_k = np.ones((LENS.sum(), HEADS, D), "float32")
    slots, new_v = all_tokens(), normal(new_k.shape, 2)
    tessera.kv_append(new_k, new_v, slots, k.pages, v.pages, **formats(k, v))
    q = normal((BATCH, HEADS, D), 3)
    out = tessera.attention_decode(q, k.pages, v.pages, LENS, page_table=TABLE, **formats(k, v))
    firsts = np.cumsum(LENS) - LENS
    stored = kv.decode(*kv.encode(new_v, "uint8"), "uint8").astype("float64")
    want = [stored[first : first + n].mean(0) for first, n in zip(firsts, LENS)]
    np.testing.assert_allclose(out, want, atol=1e-6)


def append(**changes):
    """A valid call with one thing changed."""
    k, v = pools("int8", "plain")
    given = {"k": normal((2, HEADS, D), 1), "v": normal((2, HEADS, D), 2)}
    given.update(slots=np.int32([1, 2]), k_pages=k.pages, v_pages=v.pages, k_scales=k.scales)
    return tessera.kv_append(**{**given, **changes})


def gather(**changes):
    k, v = (np.zeros((120, HEADS, D), "float32") for _ in range(2))
    given = {"seq_lens": LENS, "starts": np.int32([0, 50, 114]), "page_table": TABLE, **changes}
    return tessera.kv_gather(normal(SHAPE, 1), normal(SHAPE, 2), k=k, v=v, **given)


def copy_pages(sources, targets, **how):
    k, v = (np.zeros(SHAPE, "float32") for _ in range(2))
    return tessera.kv_copy_pages(k, v, np.int32(sources), np.int32(targets), **how)


def read_only(x):
    x.flags.writeable = False
    return x


REFUSED = {
    "a slot": (
        lambda: append(slots=np.int32([1, 224])),
        r"kv_append: slots\[1\] is 224; k_pages has 7 pages of 32 tokens, so slots run to 223",
    ),
    "scales that are missing": (
        lambda: append(k_scales=None),
        r"kv_append: k_scales is not given; these pages want f16\[7, 32, 3, 1\]",
    ),
    "another type": (
        lambda: append(v_pages=np.zeros(SHAPE, "float16")),
        "kv_append: v_pages is f16 and kv_append: k is f32",
    ),
    "a format": (
        lambda: append(k_format="int3"),
        "kv_append: k_format is 'int3'; want one of float32",
    ),
    "a style": (
        lambda: append(rope_style="spiral"),
        "kv_append: rope_style is 'spiral'; want 'half_split' or 'interleaved'",
    ),
    "half a rotation": (
        lambda: append(rope_q=normal((2, 6, D), 3), rope_positions=np.int32([0, 1])),
        "kv_append: rope_table is NULL; rope_q, rope_positions, rope_table go together",
    ),
    "pages that cannot be written": (
        lambda: append(v_pages=read_only(np.zeros(SHAPE, "float32"))),
        "kv_append: v_pages is read-only",
    ),
    "scales that cannot be written": (
        lambda: append(k_scales=read_only(np.zeros((NUM_PAGES, PAGE, HEADS, 1), "float16"))),
        "kv_append: k_scales is read-only",
    ),
    "keys that cannot be rotated in place": (
        lambda: append(k=read_only(normal((2, HEADS, D), 1)), rope_q=normal((2, 6, D), 3)),
        "kv_append: k is read-only",
    ),
    "a tail of another format": (
        lambda: append(k_tail=np.zeros((1, 32, HEADS, D), "float32")),
        "kv_append: k_tail is given.*only i4 keys with scales by column have a tail",
    ),
    "rows that are not there": (
        lambda: gather(starts=np.int32([0, 50, 118])),
        r"kv_gather: starts\[2\] is 118 and seq_lens\[2\] is 3; k has 120 tokens",
    ),
    "a sequence beyond its pages": (
        lambda: gather(seq_lens=np.int32([50, 65, 3])),
        r"kv_gather: seq_lens\[1\] is 65; a row of page_table has room for 0 to 64",
    ),
    "a target that is read": (
        lambda: copy_pages([0, 1], [2, 0]),
        r"kv_copy_pages: targets\[1\] is 0, which is also a source",
    ),
    "a page beyond the pages": (
        lambda: copy_pages([7], [0]),
        r"kv_copy_pages: sources\[0\] is 7, which is not a page; pages run from 0 to 6",
    ),
    "a list": (lambda: append(slots=[1, 2]), "kv_append: slots is a list; want a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, words = REFUSED[name]
    with pytest.raises(tessera.Error, match=words):
        call()


def test_what_is_only_read_may_be_read_only():
    """Such arrays are borrowed one by one, and the struct is filled in Python."""
    k, v = pools("e4m3", "plain")
    new = [normal((2, HEADS, D), seed) for seed in range(2)]
    slots, scales = read_only(np.int32([4, 5])), read_only(FP8_SCALES.copy())
    rope = {"rope_q": normal((2, 6, D), 3), "rope_positions": read_only(np.int32([1, 3]))}
    rope["rope_table"] = read_only(tessera.make_rope_table(4, D))
    how = {"k_scales": scales, "k_format": "e4m3", **rope}
    want, want_q = pools("e4m3", "plain"), rope["rope_q"].copy()
    want_k = tessera.rope(want_q, new[0].copy(), np.int32([1, 3]), rope["rope_table"])[1]
    tessera.kv_append(new[0], read_only(new[1]), slots, k.pages, v.pages, **how)
    np.testing.assert_array_equal(rope["rope_q"], want_q)
    np.testing.assert_array_equal(new[0], want_k)
    for pool, tokens in zip(want, new):
        pool.append(tokens, slots)
    assert_same(k, want[0], "keys")
    assert_same(v, want[1], "values")


def test_a_cache_that_is_read_only_is_read_back():
    k, v = kv.ColumnPool(SHAPE, BATCH), kv.Pool("uint8", SHAPE)
    slots, tails = all_tokens(), np.int32([2, 0, 1])
    tail_slots = np.concatenate([tails[s] * 32 + np.arange(n) % 32 for s, n in enumerate(LENS)])
    k.append(normal((LENS.sum(), HEADS, D), 1), slots, tail_slots)
    v.append(normal((LENS.sum(), HEADS, D), 2), slots)
    how = {**formats(k, v), "k_tail": k.tail, "tails": tails, "page_table": TABLE.copy()}
    arrays = [x for x in how.values() if isinstance(x, np.ndarray)]
    for x in (k.pages, v.pages, *arrays):
        read_only(x)
    got = [np.zeros((LENS.sum(), HEADS, D), "float32") for _ in range(2)]
    tessera.kv_gather(k.pages, v.pages, LENS, np.int32([0, 50, 114]), *got, **how)
    np.testing.assert_array_equal(got[0], kv.gather(k, TABLE, LENS, tails))
    np.testing.assert_array_equal(got[1], kv.gather(v, TABLE, LENS))


def test_supports_asks_without_running():
    k, v = pools("plain", "plain")
    new, slots = normal((2, HEADS, D), 1), np.int32([0, 1])
    assert tessera.supports(tessera.kv_append, new, new, slots, k.pages, v.pages)
    assert (k.pages == 7).all()
    assert not tessera.supports(tessera.kv_append, new, new, slots[:1], k.pages, v.pages)
    pages = slots[:1], slots[1:]
    assert tessera.supports(tessera.kv_copy_pages, k.pages, v.pages, *pages)
    assert not tessera.supports(tessera.kv_copy_pages, k.pages, v.pages[:, :1], *pages)
    rows = [np.zeros((4, HEADS, D), "float32") for _ in range(2)]
    assert not tessera.supports(tessera.kv_gather, k.pages, v.pages, slots, slots, *rows)
