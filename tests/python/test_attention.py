# Attention on NumPy arrays against float64: every layout, mask and feature, and what is refused.
# SPDX-License-Identifier: MIT
import attention_reference as attention
import numpy as np
import numpy_reference as ref
import pytest
import tessera
from attention_reference import FEATURES, features

# q_len, kv_len, num_heads, num_kv_heads, d_k, d_v
SIZES = [
    (1, 1, 1, 1, 8, 8),
    (7, 7, 4, 4, 16, 16),
    (33, 70, 4, 2, 64, 64),
    (70, 33, 6, 1, 32, 64),
    (65, 65, 2, 2, 96, 96),
    (20, 40, 2, 1, 192, 128),
    (5, 130, 2, 1, 256, 256),
]


@pytest.fixture(params=["float32", "float16"])
def dtype(request):
    return request.param


def normal(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tensors(size, dtype="float32", batch=3):
    q_len, kv_len, heads, kv_heads, d_k, d_v = size
    q = normal((batch, q_len, heads, d_k), dtype)
    k = normal((batch, kv_len, kv_heads, d_k), dtype, 1)
    return q, k, normal((batch, kv_len, kv_heads, d_v), dtype, 2)


def check(want, q, k, v, what="", **how):
    """Against what attention_reference gives, lse included, and into a given out."""
    dtype = q.dtype.name
    got, lse = tessera.attention_prefill(q, k, v, return_lse=True, **how)
    assert got.dtype == q.dtype and lse.dtype == np.float32
    ref.assert_close(got, want.out, want.bound(dtype), what)
    nothing = np.isneginf(want.lse)
    np.testing.assert_array_equal(np.isneginf(lse), nothing)
    finite = (np.where(nothing, 0, x) for x in (lse, want.lse))
    ref.assert_close(*finite, want.lse_error, what)
    wide = np.full((*got.shape[:-1], got.shape[-1] + 5), 7, got.dtype)
    assert tessera.attention_prefill(q, k, v, out=wide[..., :-5], **how) is not None
    np.testing.assert_array_equal(wide[..., :-5], got)
    assert (wide[..., -5:] == 7).all()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", FEATURES)
def test_batches(name, size, dtype):
    q, k, v = tensors(size, dtype)
    how = features(name, *size[:3], 3)
    check(attention.attend_batch(q, k, v, **how), q, k, v, name, **how)


@pytest.mark.parametrize("name", FEATURES)
def test_ragged_sequences(name, dtype):
    starts = np.int32([0, 17, 17, 18, 60]), np.int32([0, 40, 50, 50, 92])
    size = (60, 92, 4, 2, 32, 16)
    q, k, v = (x[0] for x in tensors(size, dtype, 1))
    how = features(name, *size[:3], 3)
    if "intervals" in how:
        how["intervals"] = how["intervals"][0]
    how.update(q_starts=starts[0], kv_starts=starts[1])
    check(attention.attend_ragged(q, k, v, **how), q, k, v, name, **how)


@pytest.mark.parametrize("page_size", [1, 8, 16])
@pytest.mark.parametrize("name", ["full", "causal", "window", "all", "intervals"])
def test_pages(name, page_size, dtype):
    size, lens = (13, 40, 4, 2, 32, 24), np.int32([40, 0, 17])
    q, k, v = tensors(size, dtype)
    how = features(name, *size[:3], 3)
    want = attention.attend_batch(q, k, v, kv_lens=lens, **how)
    k_pages, table = attention.paged(k, lens, page_size)
    v_pages, v_table = attention.paged(v, lens, page_size)
    check(want, q, k_pages, v_pages, name, k_page_table=table, kv_lens=lens, **how)
    v_pages, v_table = attention.paged(v, lens, page_size, 5)
    tables = {"k_page_table": table, "v_page_table": v_table}
    check(want, q, k_pages, v_pages, name, **tables, kv_lens=lens, **how)
    # Tokens of all sequences one after the other, over the same pages.
    starts = np.int32([0, 13, 26, 39])
    flat = {key: x.reshape(-1, 2, 2) if key == "intervals" else x for key, x in how.items()}
    got = tessera.attention_prefill(
        q.reshape(39, 4, 32), k_pages, v_pages, **tables, kv_lens=lens, q_starts=starts, **flat
    )
    ref.assert_close(got.reshape(want.out.shape), want.out, want.bound(dtype), "ragged")


def test_kv_lens_hide_what_is_behind(dtype):
    size, lens = (6, 30, 2, 1, 16, 16), np.int32([30, 0, 7])
    q, k, v = tensors(size, dtype)
    want = attention.attend_batch(q, k, v, kv_lens=lens, causal=True)
    for s, n in enumerate(lens):
        k[s, n:] = v[s, n:] = np.nan
    check(want, q, k, v, "kv_lens", kv_lens=lens, causal=True)


def test_heads_may_lie_anywhere(dtype):
    size = (20, 30, 4, 2, 16, 8)
    q, k, v = tensors(size, dtype)
    want = attention.attend_batch(q, k, v, causal=True)
    apart = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    check(want, *apart, "heads first", causal=True)
    both = np.concatenate([k, v], -1)
    check(want, q, both[..., :16], both[..., 16:], "in one tensor", causal=True)


def test_a_chunk_gives_the_bits_of_the_whole(dtype):
    size = (40, 40, 4, 2, 32, 32)
    q, k, v = tensors(size, dtype)
    whole = tessera.attention_prefill(q, k, v, causal=True)
    for n in (1, 7, 24):
        chunk = tessera.attention_prefill(q[:, -n:], k, v, causal=True)
        np.testing.assert_array_equal(chunk, whole[:, -n:])


def test_out_may_be_q(dtype):
    q, k, v = tensors((9, 9, 2, 2, 16, 16), dtype)
    want = tessera.attention_prefill(q, k, v)
    assert tessera.attention_prefill(q, k, v, out=q) is q
    np.testing.assert_array_equal(q, want)


def test_dropout_keeps_the_mean_and_follows_its_seed():
    q, k = np.zeros((1, 400, 2, 8), np.float32), np.zeros((1, 300, 2, 8), np.float32)
    v = np.ones((1, 300, 2, 1), np.float32)
    got = tessera.attention_prefill(q, k, v, dropout_rate=0.25, dropout_seed=2**40 + 3)
    # Each element is the mean of 300 draws of 0 or 4/3, so its standard deviation is 0.033; that of
    # the mean of all elements is 0.0012.
    assert abs(got.mean() - 1) < 0.006 and 0.028 < got.std() < 0.039
    again = tessera.attention_prefill(q, k, v, dropout_rate=0.25, dropout_seed=2**40 + 3)
    np.testing.assert_array_equal(got, again)
    other = tessera.attention_prefill(q, k, v, dropout_rate=0.25, dropout_seed=2**40 + 4)
    assert (got != other).any()
    chunk = tessera.attention_prefill(
        q[:, -50:], k, v, dropout_rate=0.25, dropout_seed=2**40 + 3
    )
    np.testing.assert_array_equal(chunk, got[:, -50:])


def test_codes_in_bytes_have_scales():
    size = (12, 20, 4, 2, 16, 16)
    codes = [np.random.default_rng(i).integers(0, 0x50, x.shape).astype(np.uint8)
             for i, x in enumerate(tensors(size, batch=2))]
    q_scale, k_scale, v_scale = (np.abs(normal((2, 2), seed=i)) + 0.1 for i in (3, 4, 5))
    values = [ref.from_fp8(x, ref.E4M3) for x in codes]
    values[0] = values[0] * np.repeat(q_scale, 2, 1)[:, None, :, None]
    values[1] = values[1] * k_scale[:, None, :, None]
    values[2] = values[2] * v_scale[:, None, :, None]
    want = attention.attend_batch(*values, causal=True)
    how = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale, "causal": True}
    got = tessera.attention_prefill(*codes, format="e4m3", dtype="float16", **how)
    assert got.dtype == np.float16
    ref.assert_close(got, want.out, want.bound("float16"), "e4m3")


Q, K, V = tensors((3, 5, 4, 2, 8, 8), batch=2)
STARTS = np.int32([0, 3, 3])
REFUSED = {
    "a list": (lambda: tessera.attention_prefill([1.0], K, V), "attention_prefill: q is a list"),
    "v as a list": (lambda: tessera.attention_prefill(Q, K, [1.0]), "attention_prefill: v is a"),
    "another d_k": (lambda: tessera.attention_prefill(Q, K[..., :7], V), "k has head_dim 7"),
    "heads that do not divide": (
        lambda: tessera.attention_prefill(Q[:, :, :3], K, V),
        "must be a multiple",
    ),
    "another dtype": (
        lambda: tessera.attention_prefill(Q, K.astype("float16"), V),
        "attention_prefill: k is f16",
    ),
    "a window of one number": (
        lambda: tessera.attention_prefill(Q, K, V, window=4),
        r"window is 4; want \(left, right\)",
    ),
    "a causal window that looks behind": (
        lambda: tessera.attention_prefill(Q, K, V, causal=True, window=(1, 1)),
        "causal is set",
    ),
    "a negative softcap": (lambda: tessera.attention_prefill(Q, K, V, softcap=-1.0), "softcap"),
    "a rate of one": (lambda: tessera.attention_prefill(Q, K, V, dropout_rate=1.0), "rate is 1"),
    "three intervals": (
        lambda: tessera.attention_prefill(Q, K, V, intervals=np.zeros((2, 3, 3, 2), np.int32)),
        "attention_prefill: mask.intervals",
    ),
    "rank 3 without starts": (
        lambda: tessera.attention_prefill(Q[0], K[0], V[0]),
        "q_starts is missing",
    ),
    "starts that go back": (
        lambda: tessera.attention_prefill(
            Q[0], K[0], V[0], q_starts=np.int32([0, 4, 3]), kv_starts=np.int32([0, 5, 5])
        ),
        "q_starts",
    ),
    "a page that is not there": (
        lambda: tessera.attention_prefill(
            Q, K, V, k_page_table=np.int32([[0], [2]]), kv_lens=np.int32([5, 5])
        ),
        "k_page_table",
    ),
    "sinks as a list": (lambda: tessera.attention_prefill(Q, K, V, sinks=[1.0]), "sinks is a list"),
    "scales of float32": (
        lambda: tessera.attention_prefill(Q, K, V, v_scale=np.ones((2, 2), np.float32)),
        "scales are for e4m3",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, words = REFUSED[name]
    with pytest.raises(tessera.Error, match=words):
        call()


def test_supports_asks_without_running():
    out = np.zeros((2, 3, 4, 8), np.float32)
    assert tessera.supports(tessera.attention_prefill, Q, K, V, out=out, causal=True)
    assert not out.any()
    assert not tessera.supports(tessera.attention_prefill, Q, K, V, out=out, softcap=-1.0)


def test_read_only_arrays_take_the_careful_way():
    frozen = K.copy()
    frozen.flags.writeable = False
    want = tessera.attention_prefill(Q, K, V, window=(2, None))
    np.testing.assert_array_equal(tessera.attention_prefill(Q, frozen, V, window=(2, None)), want)
    with pytest.raises(tessera.Error, match="attention_prefill: lse is read-only"):
        lse = np.zeros((2, 4, 3), np.float32)
        lse.flags.writeable = False
        tessera.attention_prefill(Q, frozen, V, lse=lse)
