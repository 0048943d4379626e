# Every operation on NumPy arrays against its float64 expression.
# SPDX-License-Identifier: MIT
import numpy as np
import numpy_reference as ref
import pytest
import tessera
from numpy_reference import wide

DTYPES = ["float32", "float16"]
SHAPES = [(1, 1), (3, 8), (5, 100), (17, 4096), (2, 3, 24), (0, 16)]


def normal(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=str)
def shape(request):
    return request.param


def test_rms_norm(shape, dtype):
    x, weight = normal(shape, dtype), normal(shape[-1], dtype, 1)
    want = ref.rms_norm(x, weight, 1e-5)
    bound = ref.rms_norm_bound(want, shape[-1], dtype)
    ref.assert_close(tessera.rms_norm(x, weight), want, bound, "new out")
    out = np.empty_like(x)
    assert tessera.rms_norm(x, weight, out=out) is out
    ref.assert_close(out, want, bound, "given out")
    assert tessera.rms_norm(x, weight, out=x) is x
    ref.assert_close(x, want, bound, "in place")


def test_rms_norm_adds_the_residual(shape, dtype):
    x, residual, weight = (normal(s, dtype, i) for i, s in enumerate((shape, shape, shape[-1])))
    stored = (np.asarray(x, np.float32) + np.asarray(residual, np.float32)).astype(dtype)
    want = ref.rms_norm(stored, weight, 1e-3)
    got = tessera.rms_norm(x, weight, 1e-3, residual=residual)
    np.testing.assert_array_equal(residual, stored)
    ref.assert_close(got, want, ref.rms_norm_bound(want, shape[-1], dtype))


def fp8_error(value):
    """Half an ulp of e4m3, and of its smallest numbers."""
    return 2.0**-4 * np.abs(value) + 2.0**-10


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn"])
def test_norms_quantise_each_token(kind):
    x, weight, bias = normal((7, 200)), normal(200, seed=1), normal(200, seed=2)
    largest = 127 if kind == "int8" else 448
    for norm, want in [
        (lambda: tessera.rms_norm(x, weight, dtype=kind), ref.rms_norm(x, weight, 1e-5)),
        (
            lambda: tessera.layer_norm(x, weight, bias, dtype=kind),
            ref.layer_norm(x, weight, bias, 1e-5),
        ),
    ]:
        q, scale = norm()
        assert q.dtype == (np.int8 if kind == "int8" else np.uint8) and scale.shape == (7,)
        ref.assert_close(scale, np.abs(want).max(-1) / largest, 1e-4 * scale, "scale")
        codes = wide(q) if kind == "int8" else ref.from_fp8(q, ref.E4M3)
        steps = 0.5 if kind == "int8" else fp8_error(codes)
        # 0.1 % of a step for the float error of y, which may tip a tie.
        bound = scale[:, None] * (steps + 1e-3 * np.maximum(np.abs(codes), 1))
        ref.assert_close(codes * scale[:, None], want, bound, "dequantised")


def test_norms_quantise_by_a_static_scale():
    x, weight = normal((7, 200)), normal(200, seed=1)
    scale = np.float32([0.05])
    q = tessera.rms_norm(x, weight, dtype="int8", static_scale=scale)
    want = np.clip(ref.rms_norm(x, weight, 1e-5) / 0.05, -127, 127)
    ref.assert_close(q, want, 0.51)


def test_layer_norm(shape, dtype):
    x, weight, bias = (normal(s, dtype, i) for i, s in enumerate((shape, shape[-1], shape[-1])))
    for b in (bias, None):
        want = ref.layer_norm(x, weight, b, 1e-5)
        bound = ref.layer_norm_bound(x, weight, b, want, 1e-5, dtype)
        ref.assert_close(tessera.layer_norm(x, weight, b), want, bound)


@pytest.mark.parametrize("style", ["half_split", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [64, 48])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_rope(style, rotary_dim, index, dtype):
    q, k = normal((6, 4, 64), dtype), normal((6, 2, 64), dtype, 1)
    table = tessera.make_rope_table(32, rotary_dim)
    np.testing.assert_allclose(table, ref.rope_table(32, rotary_dim), rtol=0, atol=ref.FLOAT)
    positions = np.array([0, 5, 31, 7, 7, 1], index)
    wants = [ref.rope(x, positions, table, style) for x in (q, k)]
    got = tessera.rope(q, k, positions, table, style=style)
    assert got[0] is q and got[1] is k
    for x, (want, size) in zip((q, k), wants):
        ref.assert_close(x, want, ref.rounding(want, dtype) + 4 * ref.FLOAT * size)


def test_rope_without_k():
    q = normal((3, 2, 8))
    table = tessera.make_rope_table(4, 8)
    positions = np.arange(3, dtype=np.int32)
    want, size = ref.rope(q, positions, table, "half_split")
    assert tessera.rope(q, None, positions, table)[1] is None
    ref.assert_close(q, want, ref.rounding(want, "float32") + 4 * ref.FLOAT * size)


def test_rope_tables_are_scaled():
    plain = ref.rope_frequencies(8)
    linear = tessera.make_rope_table(9, 8, scaling={"rope_type": "linear", "factor": 4.0})
    np.testing.assert_allclose(linear[8, :4], np.cos(2 * plain), atol=1e-7)
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    table = tessera.make_rope_table(2, 128, 500000.0, scaling=llama3)
    frequencies = ref.rope_frequencies(128, 500000.0)
    lengths = 2 * np.pi / frequencies
    blend = np.clip((8192 / lengths - 1) / (4 - 1), 0, 1)
    want = (1 - blend) * frequencies / 8 + blend * frequencies
    np.testing.assert_allclose(table[1], np.r_[np.cos(want), np.sin(want)], atol=1e-7)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    table = tessera.make_rope_table(1, 128, scaling=yarn)
    np.testing.assert_allclose(table[0, 0], 0.1 * np.log(4.0) + 1, atol=1e-6)


ACTIVATIONS = {
    "relu": (tessera.relu, lambda x: np.maximum(wide(x), 0)),
    "silu": (tessera.silu, ref.silu),
    "gelu": (tessera.gelu, lambda x: ref.gelu(x, "none")),
    "gelu_tanh": (
        lambda x, **given: tessera.gelu(x, approximate="tanh", **given),
        lambda x: ref.gelu(x, "tanh"),
    ),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, shape, dtype):
    run, reference = ACTIVATIONS[name]
    x = normal(shape, dtype)
    want = reference(x)
    ref.assert_close(run(x), want, ref.activation_bound(want, dtype))
    run(x, out=x)
    ref.assert_close(x, want, ref.activation_bound(want, dtype), "in place")


@pytest.mark.parametrize("approximate", ["silu", "none", "tanh"])
def test_gated_activations_take_the_halves_of_one_matrix(approximate, dtype):
    both = normal((9, 2, 56), dtype)
    gate, up = both[:, 0], both[:, 1]
    if approximate == "silu":
        got, want = tessera.silu_mul(gate, up), ref.silu(gate) * wide(up)
    else:
        got = tessera.gelu_mul(gate, up, approximate=approximate)
        want = ref.gelu(gate, approximate) * wide(up)
    # The float error of the activation, 1e-6 at most, is multiplied by up.
    bound = ref.activation_bound(want, dtype) + 1e-6 * np.abs(wide(up))
    ref.assert_close(got, want, bound)


def test_softmax(shape, dtype):
    x = normal(shape, dtype)
    want, bound = ref.softmax(x, 0.7)
    ref.assert_close(tessera.softmax(x, scale=0.7), want, bound + ref.rounding(want, dtype))


@pytest.mark.parametrize("mask_rows", [1, 4])
@pytest.mark.parametrize("kind", ["bool", "uint8", "float32"])
def test_softmax_with_a_mask(kind, mask_rows):
    x = normal((2, 3, 4, 33))
    visible = np.random.default_rng(3).random((mask_rows, 33)) < 0.6
    visible[0] = False  # a row with nothing visible gives zeros
    if kind == "float32":
        mask = np.where(visible, normal((mask_rows, 33), seed=4), -np.inf).astype(np.float32)
        want, bound = ref.softmax(x, 1.0, mask)
    else:
        mask = visible.astype(kind)
        want, bound = ref.softmax(x, 1.0, visible)
    ref.assert_close(tessera.softmax(x, mask=mask), want, bound + ref.rounding(want, "float32"))


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("has_residual", [False, True])
def test_scale(shape, dtype, softcap, has_residual):
    x = normal(shape, dtype)
    residual = normal(shape, dtype, seed=1) if has_residual else None
    want, bound = ref.scaled(x, 0.7, softcap, residual)
    bound = bound + ref.rounding(want, dtype)
    ref.assert_close(tessera.scale(x, 0.7, softcap=softcap, residual=residual), want, bound)
    into = x if residual is None else residual
    assert tessera.scale(x, 0.7, softcap=softcap, residual=residual, out=into) is into
    ref.assert_close(into, want, bound, "in place")


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_embedding(index, dtype):
    table = normal((11, 40), dtype)
    ids = np.array([3, 0, 10, 3], index)
    np.testing.assert_array_equal(tessera.embedding(table, ids), table[ids])


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "uint8", "bool", "int32", "int64"])
def test_copies_and_transposes_are_exact(kind):
    x = (normal((3, 5, 7)) * 100).astype(kind)
    for view in (x, x[:, ::2], x.transpose(2, 0, 1), x[::-1, 1:, ::-2]):
        got = tessera.copy(view)
        assert got.flags.c_contiguous and got.dtype == x.dtype
        np.testing.assert_array_equal(got, view)
    np.testing.assert_array_equal(tessera.transpose(x), x.swapaxes(-1, -2))
    out = np.zeros((7, 5, 3), kind)
    tessera.copy(x, out=out.T)
    np.testing.assert_array_equal(out, x.T)


def quantize_int(x, scale, zero, low, high):
    """The rule of the header, in float32: x times the reciprocal of the scale, to nearest even."""
    q = np.rint(np.asarray(x, np.float32) * (np.float32(1) / scale).astype(np.float32))
    return np.clip(q + (0 if zero is None else zero), low, high)


def spread(scale, x):
    """A scale array as one scale an element."""
    rows, cols = x.shape
    return np.repeat(np.repeat(scale, rows // scale.shape[0], 0), cols // scale.shape[1], 1)


PER = ["tensor", "channel", "token", 32]


@pytest.mark.parametrize("per", PER)
def test_int8_is_quantised_exactly_and_comes_back(per, dtype):
    x = normal((6, 96), dtype)
    q, scale = tessera.quantize(x, "int8", per=per)
    assert q.dtype == np.int8
    s = spread(scale, x)
    np.testing.assert_array_equal(q, quantize_int(x, s, None, -127, 127))
    ref.assert_close(q * wide(s), x, s * (0.5 + 1e-4))
    back = tessera.dequantize(q, scale, dtype=dtype)
    want = wide(q) * s
    ref.assert_close(back, want, ref.rounding(want, dtype))


@pytest.mark.parametrize("per", PER)
def test_uint8_has_a_zero_point(per):
    x = normal((6, 96)) + 1
    q, scale, zero = tessera.quantize(x, "uint8", per=per)
    assert q.dtype == np.uint8 and zero.dtype == np.int32 and zero.shape == scale.shape
    s, z = spread(scale, x), spread(zero, x)
    np.testing.assert_array_equal(q, quantize_int(x, s, z, 0, 255))
    ref.assert_close(tessera.dequantize(q, scale, zero), x, s * (1 + 1e-4))


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("per", PER)
def test_int4_is_packed_two_to_a_byte(per, asymmetric):
    x = normal((6, 96))
    q, scale, *rest = tessera.quantize(x, "int4", per=per, asymmetric=asymmetric)
    assert q.shape == (6, 48) and q.dtype == np.uint8 and len(rest) == int(asymmetric)
    codes = np.stack([q & 15, q >> 4], -1).reshape(6, 96).astype(int)
    s = spread(scale, x)
    if asymmetric:
        z = spread(rest[0], x)
        np.testing.assert_array_equal(codes, quantize_int(x, s, z, 0, 15))
    else:
        codes = np.where(codes > 7, codes - 16, codes)
        np.testing.assert_array_equal(codes, quantize_int(x, s, None, -7, 7))
    back = tessera.dequantize(q, scale, *rest, format="int4")
    ref.assert_close(back, x, s * (1 + 1e-4))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("per", PER)
def test_fp8_is_quantised_exactly_and_comes_back(kind, per):
    values = ref.E4M3 if kind == "float8_e4m3fn" else ref.E5M2
    x = normal((6, 96))
    q, scale = tessera.quantize(x, kind, per=per)
    s = spread(scale, x)
    scaled = x * (np.float32(1) / s)
    np.testing.assert_array_equal(q, ref.to_fp8(scaled, values))
    back = tessera.dequantize(q, scale, format=kind)
    want = ref.from_fp8(q, values) * s
    ref.assert_close(back, want, ref.rounding(want, "float32"))


def test_quantize_reads_given_scales_and_writes_given_outputs():
    x = normal((4, 16))
    scale = np.full((1, 1), 0.25, np.float32)
    q, same = tessera.quantize(x, "int8", scale=scale)
    assert same is scale and scale[0, 0] == 0.25
    np.testing.assert_array_equal(q, quantize_int(x, scale, None, -127, 127))
    out = np.empty((4, 16), np.int8), np.empty((4, 1), np.float32)
    got = tessera.quantize(x, "int8", out=out)
    assert got[0] is out[0] and got[1] is out[1]
    np.testing.assert_array_equal(out[0], quantize_int(x, out[1], None, -127, 127))


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "absmax"])
def test_reduce(kind, shape, dtype):
    x = normal(shape, dtype)
    exact = wide(x)
    got = tessera.reduce(x, kind)
    assert got.dtype == np.float32
    if kind in ("sum", "mean"):
        divisor = shape[-1] if kind == "mean" else 1
        bound = (shape[-1] + 2) * ref.FLOAT * np.abs(exact).sum(-1) / divisor
        ref.assert_close(got, exact.sum(-1) / divisor, bound)
    else:
        want = {"max": exact.max, "min": exact.min, "absmax": np.abs(exact).max}[kind](axis=-1)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_argmax(index, shape, dtype):
    x = normal(shape, dtype)
    got = tessera.argmax(x, dtype=index)
    assert got.dtype == index
    np.testing.assert_array_equal(got, np.argmax(x, -1))
