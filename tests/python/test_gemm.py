# The matrix products on NumPy arrays: exact on integers, close on the rest, and what is refused.
# SPDX-License-Identifier: MIT
import numpy as np
import numpy_reference as ref
import pytest
import tessera

SIZES = [(1, 1, 1), (3, 16, 8), (17, 72, 33), (64, 48, 200), (0, 16, 8), (4, 16, 0), (2, 0, 8)]
ACTIVATIONS = list(ref.ACTIVATIONS)


@pytest.fixture(params=["float32", "float16"])
def dtype(request):
    return request.param


def normal(shape, dtype="float32", seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def integers(shape, dtype, most, seed=0):
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def factors(m, n, k, dtype):
    return normal((m, k), dtype), normal((n, k), dtype, 1, max(k, 1) ** -0.5)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_integers_are_exact(size, dtype):
    m, n, k = size
    a, b = integers((m, k), dtype, 3), integers((n, k), dtype, 3, 1)
    want = (ref.wide(a) @ ref.wide(b).T).astype(dtype)
    got = tessera.gemm(a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)
    out = np.full((m, n + 3), 7, dtype)
    view = out[:, :n]
    assert tessera.gemm(a, b, out=view) is view
    np.testing.assert_array_equal(view, want)
    assert (out[:, n:] == 7).all()
    np.testing.assert_array_equal(tessera.gemm(a, b, dtype="float32"), want.astype("float32"))


EPILOGUES = {
    "none": {},
    "bias": {"bias": True},
    "residual": {"residual": True},
    "all": {"bias": True, "activation": "gelu", "residual": True},
    **{name: {"activation": name} for name in ACTIVATIONS},
    **{f"gated {name}": {"activation": name, "is_gated": True} for name in ACTIVATIONS},
    "gated all": {"bias": True, "activation": "silu", "is_gated": True, "residual": True},
}


def epilogue_tensors(how, m, n, dtype, batch=()):
    """Arguments of tessera.gemm and of the reference, with tensors where `how` says True."""
    how = dict(how)
    if how.get("bias"):
        how["bias"] = normal(n, dtype, 2)
    if how.get("residual"):
        how["residual"] = normal((*batch, m, n // 2 if how.get("is_gated") else n), dtype, 3)
    return how


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name, dtype):
    m, n, k = 9, 48, 100
    a, b = factors(m, n, k, dtype)
    how = epilogue_tensors(EPILOGUES[name], m, n, dtype)
    want, error = ref.gemm(a, b, **how)
    got = tessera.gemm(a, b, **how)
    assert got.dtype == dtype and got.shape == want.shape
    ref.assert_close(got, want, error + ref.rounding(want, dtype), name)
    wide = tessera.gemm(a, b, **how, dtype="float32", is_b_static=True)
    ref.assert_close(wide, want, error + ref.rounding(want, "float32"), f"{name} in float32")


def test_the_residual_may_be_out(dtype):
    a, b = factors(5, 24, 40, dtype)
    out = normal((5, 24), dtype, 3)
    want, error = ref.gemm(a, b, residual=out)
    assert tessera.gemm(a, b, residual=out, out=out) is out
    ref.assert_close(out, want, error + ref.rounding(want, dtype))


@pytest.mark.parametrize("shares_b", [False, True])
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_batches(batch, shares_b, dtype):
    a = normal((batch, 5, 40), dtype)
    b = normal((24, 40) if shares_b else (batch, 24, 40), dtype, 1)
    how = epilogue_tensors({"bias": True, "residual": True}, 5, 24, dtype, (batch,))
    want, error = ref.gemm(a, b, **how)
    ref.assert_close(tessera.gemm(a, b, **how), want, error + ref.rounding(want, dtype))


@pytest.mark.parametrize("groups", [None, 1, 5])
def test_codes_of_b_have_scales(groups, dtype):
    n, k = 24, 40
    a, codes = normal((7, k), dtype), integers((n, k), "int8", 127, 1)
    scale = np.abs(normal((n,) if groups is None else (n, groups), seed=2, scale=0.01)) + 0.001
    spread = scale[:, None] if groups is None else np.repeat(scale, k // groups, 1)
    b = codes * ref.wide(spread)
    want = ref.wide(a) @ b.T
    error = (k + 2) * 2.0**-22 * (np.abs(ref.wide(a)) @ np.abs(b).T)
    got = tessera.gemm(a, codes, b_scale=scale)
    ref.assert_close(got, want, error + ref.rounding(want, dtype))


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn"])
def test_codes_of_out_saturate(kind, dtype):
    a, b = factors(9, 48, 64, dtype)
    want, error = ref.gemm(a, b, activation="silu")
    scale = np.float32([0.01])
    got = tessera.gemm(a, b, activation="silu", dtype=kind, out_scale=scale)
    assert got.dtype == (np.int8 if kind == "int8" else np.uint8)
    largest = 127 if kind == "int8" else 448
    codes = ref.wide(got) if kind == "int8" else ref.from_fp8(got, ref.E4M3)
    step = 0.5 if kind == "int8" else 2.0**-4 * np.abs(codes) + 2.0**-10
    wanted = np.clip(want / scale[0], -largest, largest)
    assert kind != "int8" or (wanted == largest).any()
    # 0.1 % of a step for the float error, which may tip a tie.
    ref.assert_close(codes, wanted, step * 1.001 + error / scale[0], kind)
    out = np.zeros_like(got)
    assert tessera.gemm(a, b, activation="silu", dtype=kind, out_scale=scale, out=out) is out
    np.testing.assert_array_equal(out, got)


def test_gate_and_up_are_interleaved_by_eights(dtype):
    gate, up = normal((24, 10), dtype), normal((24, 10), dtype, 1)
    packed = tessera.pack_gate_up(gate, up)
    want = np.stack([gate.reshape(3, 8, 10), up.reshape(3, 8, 10)], 1).reshape(48, 10)
    np.testing.assert_array_equal(packed, want)
    out = np.zeros((48, 10), dtype)
    assert tessera.pack_gate_up(gate.T.copy().T, up, out=out) is out
    np.testing.assert_array_equal(out, want)
    a = normal((4, 10), dtype, 2)
    got = tessera.gemm(a, packed, activation="silu", is_gated=True, dtype="float32")
    both = ref.wide(a) @ ref.wide(gate).T, ref.wide(a) @ ref.wide(up).T
    _, error = ref.gemm(a, packed, activation="silu", is_gated=True)
    ref.assert_close(got, ref.silu(both[0]) * both[1], error + 1e-6)


def prune(w):
    """w with all but the two largest of every four neighbours set to 0."""
    fours = np.abs(ref.wide(w)).reshape(len(w), -1, 4)
    rank = np.argsort(np.argsort(-fours, axis=-1, kind="stable"), axis=-1)
    return np.where(rank.reshape(w.shape) < 2, w, 0).astype(w.dtype)


@pytest.mark.parametrize("size", [(3, 5, 32), (17, 33, 160), (8, 64, 96), (0, 4, 32), (2, 3, 0)])
def test_a_pruned_weight_is_two_in_four(size):
    m, n, k = size
    w = integers((n, k), "float16", 9)  # with ties, of which the first are kept
    values, meta = tessera.prune_2_4(w)
    assert values.shape == (n, k // 2) and meta.dtype == np.int32
    kept = prune(w)
    np.testing.assert_array_equal(tessera.expand_2_4(values, meta), kept)
    a = integers((m, k), "float16", 2, 1)
    want = (ref.wide(a) @ ref.wide(kept).T).astype("float16")
    np.testing.assert_array_equal(tessera.gemm_2_4(a, values, meta), want)
    out = np.empty_like(want)
    assert tessera.gemm_2_4(a, values, meta, out=out) is out
    np.testing.assert_array_equal(out, want)
    given = np.zeros_like(values), np.zeros_like(meta)
    assert tessera.prune_2_4(w, out=given)[0] is given[0]
    np.testing.assert_array_equal(given[0], values)
    np.testing.assert_array_equal(given[1], meta)


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


A, B = ones(2, 8), ones(16, 8)
REFUSED = {
    "another k": (lambda: tessera.gemm(A, ones(16, 7)), "they must agree in k"),
    "another dtype": (lambda: tessera.gemm(A, ones(16, 8, dtype="float16")), "gemm: b is f16"),
    "a vector": (lambda: tessera.gemm(ones(8), B), "gemm: a is f32.8."),
    "b as a vector": (lambda: tessera.gemm(A, ones(8)), "gemm: b is f32.8."),
    "a list": (lambda: tessera.gemm([1.0], B), "gemm: a is a list"),
    "b as a list": (lambda: tessera.gemm(A, [1.0]), "gemm: b is a list"),
    "bias as a list": (lambda: tessera.gemm(A, B, bias=[1.0]), "gemm: bias is a list"),
    "a short bias": (lambda: tessera.gemm(A, B, bias=ones(15)), "gemm: bias"),
    "an unknown activation": (
        lambda: tessera.gemm(A, B, activation="swish"),
        "activation is 'swish'; want None, 'relu'",
    ),
    "a gate without a function": (
        lambda: tessera.gemm(A, B, is_gated=True),
        "is_gated is set and activation is not",
    ),
    "a gate of odd rows": (
        lambda: tessera.gemm(A, ones(24, 8), activation="silu", is_gated=True),
        "multiple of 16",
    ),
    "codes without a scale": (lambda: tessera.gemm(A, B, dtype="int8"), "has no out_scale"),
    "a scale without codes": (
        lambda: tessera.gemm(A, B, out_scale=ones(1)),
        "out_scale is given without dtype",
    ),
    "codes of b without scales": (
        lambda: tessera.gemm(A, ones(16, 8, dtype="int8")),
        "has no b_scale",
    ),
    "a type of out": (lambda: tessera.gemm(A, B, dtype="int64"), "gemm: out is i64"),
    "a shape of out": (
        lambda: tessera.gemm(A, B, out=ones(2, 15)),
        r"gemm: out is f32.* it must be \[2, 16\]",
    ),
    "out in a": (lambda: tessera.gemm(A, ones(8, 8), out=A), "gemm: out"),
    "a residual of another shape": (
        lambda: tessera.gemm(A, B, residual=ones(1, 16)),
        "gemm: residual",
    ),
    "gate and up that differ": (lambda: tessera.pack_gate_up(B, A), "pack_gate_up: up"),
    "gate of odd rows": (lambda: tessera.pack_gate_up(A, A), "must be a multiple of 8"),
    "pruning float32": (lambda: tessera.prune_2_4(ones(2, 32)), "prune_2_4: w is f32"),
    "pruning a short row": (
        lambda: tessera.prune_2_4(ones(2, 8, dtype="float16")),
        "k must be a multiple of 32",
    ),
    "asking of a step": (
        lambda: tessera.supports(tessera.pack_gate_up, B, B),
        "pack_gate_up: check_only is set",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, words = REFUSED[name]
    with pytest.raises(tessera.Error, match=words):
        call()


def test_supports_asks_without_running():
    out = np.zeros((2, 16), np.float32)
    assert tessera.supports(tessera.gemm, A, B, out=out)
    assert not out.any()
    assert not tessera.supports(tessera.gemm, A, B, out=out, is_gated=True)
    assert not tessera.supports(tessera.gemm_2_4, A, B, B)
