# attention_merge and attention_cascade on NumPy arrays: the formula, attention_decode over all keys
# at once, float64, and what is refused.
# SPDX-License-Identifier: MIT
import attention_reference as attention
import numpy as np
import pytest
import tessera

BATCH, HEADS, KV_HEADS, D, PAGE = 4, 6, 2, 16, 8
SHARED = 40  # tokens, in 5 pages
OWN = np.int32([20, 0, 9, 3])
NOTHING = -np.inf


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("q_len", [None, 3])
def test_parts_weigh_as_their_logarithms_say(q_len):
    shape = (5, BATCH, *([q_len] if q_len else []), HEADS, D)
    parts = normal(shape, 1)
    lses = normal((5, BATCH, HEADS, *([q_len] if q_len else [])), 2) * 8
    lses[1, 0], lses[3, 2], lses[:, 1, 1] = NOTHING, NOTHING, NOTHING
    parts[1, 0] = np.nan  # a part that has seen no key
    want, want_lse = attention.merge(parts, lses)
    out, lse = tessera.attention_merge(parts, lses, return_lse=True)
    assert out.dtype == parts.dtype and lse.dtype == np.float32
    np.testing.assert_allclose(out, want, atol=2e-6)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-6)
    assert (lse[1, 1] == NOTHING).all() and (out[1][..., 1, :] == 0).all()
    given = np.empty_like(out), np.empty_like(lse)
    result = tessera.attention_merge(parts, lses, out=given[0], lse=given[1])
    assert result[0] is given[0] and result[1] is given[1]
    np.testing.assert_array_equal(given[0], out)
    np.testing.assert_array_equal(given[1], lse)
    np.testing.assert_array_equal(tessera.attention_merge(parts, lses), out)


def test_attention_over_halves_of_the_keys_is_attention_over_all():
    q, k, v = (normal((2, n, h, D), n) for n, h in ((5, HEADS), (30, KV_HEADS), (30, KV_HEADS)))
    halves = [slice(0, 17), slice(17, 30)]
    parts = [
        tessera.attention_prefill(q, k[:, keys], v[:, keys], return_lse=True) for keys in halves
    ]
    out = tessera.attention_merge(*(np.stack(x) for x in zip(*parts)))
    np.testing.assert_allclose(out, tessera.attention_prefill(q, k, v), atol=2e-6)


class Case:
    """Four sequences of 40 shared tokens and up to 20 of their own, in pages of one pool."""

    def __init__(self, q_len=1, dtype="float32"):
        self.own = np.maximum(OWN, q_len if q_len > 1 else 0).astype("int32")
        self.q = normal((BATCH, q_len, HEADS, D), 0).astype(dtype)
        self.pages = [normal((19, PAGE, KV_HEADS, D), seed).astype(dtype) for seed in (1, 2)]
        order = np.random.default_rng(3).permutation(19).astype("int32")
        self.shared_table, self.table = order[None, :5], order[5:17].reshape(BATCH, 3)

    def whole_table(self):
        return np.hstack([self.shared_table.repeat(BATCH, 0), self.table])

    def decode(self, **how):
        """attention_decode over all keys at once."""
        lens, table = self.own + np.int32(SHARED), self.whole_table()
        return tessera.attention_decode(
            self.q, *self.pages, lens, page_table=table, return_lse=True, **how
        )

    def cascade(self, cut=None, **how):
        """`cut`: the table of the shared pieces, and how many tokens each has."""
        table, lens = cut or (self.shared_table, [SHARED])
        how = {"page_table": self.table, "shared_page_table": table, "return_lse": True, **how}
        shared = (*self.pages, np.int32(lens))
        return tessera.attention_cascade(self.q, *self.pages, self.own, *shared, **how)

    def wide(self, **how):
        rows = [x[self.shared_table[0]].reshape(-1, KV_HEADS, D) for x in self.pages]
        own = [x[self.table].reshape(BATCH, -1, KV_HEADS, D) for x in self.pages]
        return attention.attend_cascade(self.q, *rows, *own, self.own, **how)


def assert_close(got, want, what=""):
    for a, b in zip(got, want):
        np.testing.assert_allclose(a, b, atol=4e-6, err_msg=str(what))


@pytest.mark.parametrize("q_len", [1, 3, 16])
def test_is_decode_attention_over_all_keys(q_len):
    case, sinks = Case(q_len), normal(HEADS, 4)
    table = case.shared_table[0]
    cuts = {
        "one piece": (table[None], [40]),
        "two pieces": (np.int32([[*table[:3]], [*table[3:], -9]]), [24, 16]),
        "parts of pages": (np.int32([table[:4], table[1:]]), [32, 0]),
    }
    for name, how in {"plain": {}, "all": {"scale": 0.3, "softcap": 2.0, "sinks": sinks}}.items():
        for cut in ("one piece", "two pieces"):
            got, wide = case.cascade(cuts[cut], **how), case.wide(**how)
            assert_close(got, case.decode(**how), (name, cut))
            assert_close(got, (wide.out, wide.lse), (name, cut))
    got = case.cascade(cuts["parts of pages"])  # none of the last page, and an empty piece
    case.shared_table = case.shared_table[:, :4]
    assert_close(got, (case.wide().out, case.wide().lse), "parts of pages")


def test_a_query_a_sequence_needs_no_axis():
    case = Case()
    want, want_lse = case.cascade()
    case.q = case.q[:, 0]
    out, lse = case.cascade(longest=20)
    np.testing.assert_array_equal(out, want[:, 0])
    np.testing.assert_array_equal(lse, want_lse[..., 0])


def test_pieces_without_a_table():
    case = Case()
    pieces = [np.full((2, 30, KV_HEADS, D), np.nan, "float32") for _ in range(2)]
    for piece, pages in zip(pieces, case.pages):
        rows = pages[case.shared_table[0]].reshape(-1, KV_HEADS, D)
        piece[0, :28], piece[1, :12] = rows[:28], rows[28:]
    got = tessera.attention_cascade(
        case.q, *case.pages, case.own, *pieces, np.int32([28, 12]), page_table=case.table
    )
    np.testing.assert_allclose(got, case.decode()[0], atol=4e-6)


def test_trees_and_lists_count_own_keys():
    case = Case(3)
    words = np.int32([[1, 3, 5]] * BATCH)
    keys = np.int32([[[1, 2, 0], [0, 1, 2], [2, 0, 0]]] * BATCH)
    keys[0, :2, 2] = 17, 18
    counts = np.int32([[3, 2, 1]] * BATCH)
    shared = np.broadcast_to(np.arange(SHARED, dtype="int32"), (BATCH, 3, SHARED))
    blocks, num_blocks = np.int32([[2, 0], [0, 0], [1, 0], [0, 0]]), np.int32([2, 1, 1, 1])
    first = np.broadcast_to(np.arange(5, dtype="int32"), (BATCH, 5))
    calls = {
        "tree": ({"tree": words}, {"tree": words}),
        "keys": (
            {"keys": keys, "num_keys": counts},
            {"keys": np.concatenate([shared, keys + SHARED], -1), "num_keys": counts + SHARED},
        ),
        "blocks": (
            {"blocks": blocks, "num_blocks": num_blocks},
            {"blocks": np.hstack([first, blocks + 5]), "num_blocks": num_blocks + 5},
        ),
    }
    for name, (own, whole) in calls.items():
        assert_close(case.cascade(**own), case.decode(**whole), name)


def test_own_keys_in_fewer_bits():
    """Codes that stand for the same numbers as plain pages do."""
    case = Case()
    codes = np.random.default_rng(3).integers(0, 16, (19, PAGE, KV_HEADS, D), "uint8")
    scales = np.broadcast_to(np.float16([0.125, -1]), (19, PAGE, KV_HEADS, 2)).copy()
    packed = codes[..., ::2] | codes[..., 1::2] << 4
    plain = (codes * 0.125 - 1).astype("float32")
    shared = (*case.pages, np.int32([SHARED]))
    how = {"page_table": case.table, "shared_page_table": case.shared_table}
    want = tessera.attention_cascade(case.q, plain, plain, case.own, *shared, **how)
    how.update(k_scales=scales, v_scales=scales, k_format="i4", v_format="i4")
    got = tessera.attention_cascade(case.q, packed, packed, case.own, *shared, **how)
    np.testing.assert_allclose(got, want, atol=4e-6)
    assert np.abs(got - case.decode()[0]).max() > 0.1


def test_a_tail_of_own_keys():
    """Keys in 4 bits by column: up to 20 own tokens are all in the tail, so no code is read."""
    case = Case()
    tail = normal((BATCH, 32, KV_HEADS, D), 5)
    plain = tail.copy()
    shared = (*case.pages, np.int32([SHARED]))
    how = {"shared_page_table": case.shared_table}
    want = tessera.attention_cascade(case.q, plain, plain, case.own, *shared, **how)
    codes = np.full((BATCH, 32, KV_HEADS, D // 2), 255, "uint8")
    scales = np.full((BATCH, 1, KV_HEADS, D, 2), 100, "float16")
    how.update(k_scales=scales, k_format="i4", k_tail=tail[::-1].copy())
    how["tails"] = np.arange(BATCH, dtype="int32")[::-1].copy()
    got = tessera.attention_cascade(case.q, codes, plain, case.own, *shared, **how)
    np.testing.assert_allclose(got, want, atol=4e-6)


def test_scratch_memory_and_results_may_be_given():
    case = Case(3)
    want, want_lse = case.cascade()
    parts = np.full((2, *case.q.shape), np.nan, "float32")
    lses = np.full(parts.shape[:-1], np.nan, "float32")
    q, lse = case.q, np.empty_like(want_lse)
    result = case.cascade(out=q, lse=lse, parts=parts, part_lses=lses)
    assert result[0] is q and result[1] is lse
    np.testing.assert_array_equal(q, want)
    np.testing.assert_array_equal(lse, want_lse)
    assert not np.isnan(parts).any() and not np.isnan(lses).any()
    merged = tessera.attention_merge(parts, lses.swapaxes(-1, -2))
    np.testing.assert_array_equal(merged, want)


def test_halves_are_a_few_roundings_from_decode_attention():
    case = Case(3, "float16")
    got, want = case.cascade(), case.decode()
    assert got[0].dtype == np.float16
    np.testing.assert_allclose(got[0], want[0], atol=4 * 2.0**-11)
    np.testing.assert_allclose(got[1], want[1], atol=4e-6)


def test_merging_refuses_what_does_not_fit():
    parts, lses = normal((3, 2, 4, 8), 0), normal((3, 2, 4), 1)

    def refused(words, *tensors, **how):
        with pytest.raises(tessera.Error, match=words):
            tessera.attention_merge(*tensors, **how)

    refused(r"attention_merge: part_lses is f32\[2, 2, 4\].*f32\[3, 2, 4, 8\]", parts, lses[:2])
    refused(r"attention_merge: out is f32\[2, 4, 4\]", parts, lses, out=normal((2, 4, 4), 2))
    refused("out is f16 and .*parts is f32", parts, lses, out=parts[0].astype("float16"))
    refused(r"attention_merge: parts .*rank 3", parts[0], lses)
    refused("attention_merge: parts is a list; want a tensor", parts.tolist(), lses)
    refused("attention_merge: part_lses is a list", parts, lses.tolist())
    refused("attention_merge: part_lses is a list", parts, lses.tolist(), return_lse=True)
    lse = normal((2, 4), 1)
    lse.flags.writeable = False
    refused("attention_merge: lse is read-only", parts, lses, lse=lse)
    assert not tessera.supports(tessera.attention_merge, parts, lses[:2])
    assert tessera.supports(tessera.attention_merge, parts, lses)


def test_a_cascade_refuses_what_does_not_fit():
    case = Case()

    def refused(words, cut=None, **how):
        with pytest.raises(tessera.Error, match=words):
            case.cascade(cut, **how)

    scratch = {"parts": np.zeros((2, *case.q.shape), "float32")}
    scratch["part_lses"] = np.zeros((2, *case.q.shape[:-1]), "float32")
    refused(r"page_table is i32\[1, 5\].*piece_lens is i32\[2\]", (case.shared_table, [9, 9]))
    refused(r"attention_decode: page_table is i32\[2, 3\]", page_table=case.table[:2])
    refused("attention_cascade: k_format is 'nothing'", k_format="nothing")
    few = {**scratch, "parts": scratch["parts"][:1]}
    refused(r"attention_cascade: parts is f32\[1, 4, 1, 6, 16\].*768 elements", **few)
    refused(r"attention_cascade: part_lses is f32\[1, .*48 elements", part_lses=few["parts"])
    halves = scratch["parts"].astype("float16")
    refused(r"attention_cascade: parts is f16.*must be f32", parts=halves)
    with tessera.using(stream=1):
        refused("parts or part_lses is None and `using` names a stream", parts=scratch["parts"])
        case.cascade(**scratch)  # runs: the CPU ignores the stream
    with pytest.raises(TypeError, match="window"):
        case.cascade(window=9)
    pages = case.pages
    with pytest.raises(tessera.Error, match="attention_cascade: piece_lens is a list"):
        tessera.attention_cascade(case.q, *pages, case.own, *pages, [SHARED])
    lens, own = np.int32([SHARED]), [x.astype("float16") for x in pages]
    assert not tessera.supports(tessera.attention_cascade, case.q, *pages, case.own, *own, lens)
    case.q = np.broadcast_to(case.q, (BATCH, 2, HEADS, D))
    refused("attention_cascade: own.q .*evenly apart", out=np.empty(case.q.shape, "float32"))


def test_scratch_memory_that_cannot_be_made_is_asked_for():
    class Foreign:
        """A tensor of a framework that Tessera can read but not allocate with."""

        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    case = Case()
    want, _ = case.cascade()  # also computes lse
    given = {"parts": np.empty((2, *case.q.shape), "float32")}
    given["part_lses"] = np.empty((2, *case.q.shape[:-1]), "float32")
    given["lse"] = np.empty((BATCH, HEADS, 1), "float32")
    given["out"] = np.empty_like(case.q)
    case.q = Foreign(case.q)
    for name in given:
        others = {other: x for other, x in given.items() if other != name}
        with pytest.raises(tessera.Error, match=f"attention_cascade: {name} cannot.*pass {name}="):
            case.cascade(**others)
    np.testing.assert_array_equal(case.cascade(**given)[0], want)
