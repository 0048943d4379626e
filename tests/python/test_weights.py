# Products with every form of a quantised weight, packed weights, and ids computed on the device.
# SPDX-License-Identifier: MIT
import numpy as np
import pytest
import tessera

RNG = np.random.default_rng(3)



@pytest.mark.parametrize(
    "dtype, per, asymmetric",
    [("int8", "token", False), ("int8", 32, False), ("uint8", 32, True), ("int4", 32, False),
     ("int4", 64, True), ("float8_e4m3fn", "token", False), ("float8_e5m2", 32, False)],
)
def test_every_form_is_what_it_stands_for(dtype, per, asymmetric):
    a = RNG.standard_normal((5, 128), dtype=np.float32)
    w = RNG.standard_normal((64, 128), dtype=np.float32)
    codes, scale, *zero = tessera.quantize(w, dtype, per=per, asymmetric=asymmetric)
    zero = zero[0] if zero else None
    want = a @ tessera.dequantize(codes, scale, zero, format=dtype).T
    got = tessera.gemm(a, codes, b_scale=scale, b_zero_point=zero, b_dtype=dtype)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_blocks_of_rows_and_order():
    a = RNG.standard_normal((3, 128), dtype=np.float32)
    codes = RNG.integers(-100, 100, (64, 128)).astype(np.int8)
    scale = RNG.uniform(0.1, 1, (4, 4)).astype(np.float32)
    order = RNG.permutation(128).astype(np.int32)
    w = codes * np.repeat(np.repeat(scale, 16, 0), 32, 1)
    got = tessera.gemm(a, codes, b_scale=scale, b_rows_per_scale=16, b_group=32)
    np.testing.assert_allclose(got, a @ w.T, rtol=1e-4, atol=1e-2)
    got = tessera.gemm(a, codes, b_scale=scale, b_rows_per_scale=16, b_order=order)
    np.testing.assert_allclose(got, a[:, order] @ w.T, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_a_packed_weight_gives_the_same_product_and_the_same_bytes_back(asymmetric):
    a = RNG.standard_normal((4, 128), dtype=np.float32)
    w = RNG.standard_normal((64, 128), dtype=np.float32)
    weight = tessera.quantize(w, "int4", per=64, asymmetric=asymmetric)
    packed = tessera.pack_weight(*weight)
    assert not np.array_equal(packed[0], weight[0])
    for one, other in zip(tessera.pack_weight(*packed, packing="fragments", to="rows"), weight):
        assert np.array_equal(one, other)

    def product(form, packing):
        zero = form[2] if asymmetric else None
        return tessera.gemm(
            a, form[0], b_scale=form[1], b_zero_point=zero, b_dtype="int4", b_packing=packing
        )

    want = product(weight, "rows")
    np.testing.assert_allclose(product(packed, "fragments"), want, rtol=1e-5, atol=1e-4)
    assert tessera.preferred_packing(a, *weight) == "rows"  # a CPU has no kernel for fragments


def test_packed_scales_may_have_16_bits():
    a = RNG.standard_normal((4, 128), dtype=np.float32)
    w = RNG.standard_normal((64, 128), dtype=np.float32)
    codes, scale = tessera.quantize(w, "int4", per=64)
    half = scale.astype(np.float16)
    rows = (codes, half.astype(np.float32))
    packed = tessera.pack_weight(codes, scale, scale_dtype="float16")
    assert packed[1].dtype == np.float16
    assert np.array_equal(packed[1], tessera.pack_weight(*rows)[1])
    for one, other in zip(tessera.pack_weight(*packed, packing="fragments", to="rows"), rows):
        assert np.array_equal(one, other) and one.dtype == other.dtype
    want = tessera.gemm(a, rows[0], b_scale=rows[1], b_dtype="int4")
    got = tessera.gemm(a, packed[0], b_scale=packed[1], b_dtype="int4", b_packing="fragments")
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    with pytest.raises(tessera.Error, match="b_scale is f16.* must be one of f32"):
        tessera.gemm(a, codes, b_scale=half, b_dtype="int4")
    with pytest.raises(tessera.Error, match="scale of out is i8"):
        tessera.pack_weight(codes, scale, scale_dtype="int8")


def test_activations_and_residuals_go_with_a_form():
    a = RNG.standard_normal((4, 64), dtype=np.float32)
    codes, scale = tessera.quantize(RNG.standard_normal((32, 64), dtype=np.float32), "int4", per=32)
    residual = np.ones((4, 32), np.float32)
    plain = tessera.gemm(a, codes, b_scale=scale, b_dtype="int4")
    got = tessera.gemm(
        a, codes, b_scale=scale, b_dtype="int4", activation="relu", residual=residual
    )
    np.testing.assert_allclose(got, np.maximum(plain, 0) + 1, rtol=1e-5, atol=1e-5)


def test_refuses_a_form_that_does_not_fit():
    a = np.zeros((4, 64), np.float32)
    codes = np.zeros((32, 32), np.uint8)
    scale = np.ones((32, 3), np.float32)
    with pytest.raises(tessera.Error, match="scale"):
        tessera.gemm(a, codes, b_scale=scale, b_dtype="int4")
    with pytest.raises(tessera.Error, match="b_packing is 'tiles'"):
        tessera.gemm(a, codes, b_scale=scale, b_dtype="int4", b_packing="tiles")


def test_ids_that_are_computed_elsewhere():
    table = RNG.standard_normal((10, 4), dtype=np.float32)
    ids = np.array([3, -1, -2, 0], np.int32)
    computed = np.array([7, 9], np.int32)
    got = tessera.embedding(table, ids, computed=computed)
    assert np.array_equal(got, table[[3, 7, 9, 0]])


def test_codes_that_are_indices_of_a_table():
    random = np.random.default_rng(4)
    indices = random.integers(0, 16, (24, 64))
    codes = (indices[:, 1::2] << 4 | indices[:, ::2]).astype(np.uint8)
    table = random.permutation(16).astype(np.float32) - 8
    scale = (2.0 ** random.integers(-3, 3, (24, 2))).astype(np.float32)
    a = random.integers(-4, 5, (5, 64)).astype(np.float32)
    residual = np.ones((5, 24), np.float32)
    want = a @ (table[indices] * np.repeat(scale, 32, 1)).T
    assert np.array_equal(tessera.gemm(a, codes, b_scale=scale, b_table=table), want)
    got = tessera.gemm(a, codes, b_scale=scale, b_table=table, activation="relu", residual=residual)
    assert np.array_equal(got, np.maximum(want, 0) + 1)
    with pytest.raises(tessera.Error, match=r"table is .*\[15\].* must have 16"):
        tessera.gemm(a, codes, b_scale=scale, b_table=table[:15])
    with pytest.raises(tessera.Error, match="b_order is given and b has a table"):
        tessera.gemm(a, codes, b_scale=scale, b_table=table, b_order=np.arange(64, dtype=np.int32))


def test_codes_on_both_sides_are_multiplied_exactly():
    a = RNG.integers(-128, 128, (5, 256)).astype(np.int8)
    b = RNG.integers(-128, 128, (48, 256)).astype(np.int8)
    token = (2.0 ** RNG.integers(-4, 4, 5)).astype(np.float32)
    row = (2.0 ** RNG.integers(-4, 4, 48)).astype(np.float32)
    sums = a.astype(np.int64) @ b.astype(np.int64).T
    want = (sums * token[:, None] * row).astype(np.float32)
    got = tessera.gemm(a, b, a_scale=token, b_scale=row)
    assert got.dtype == np.float32 and np.array_equal(got, want)
    # One scale for all, groups of 128 and blocks of 128 x 128.
    one = np.array([0.5], np.float32)
    assert np.array_equal(tessera.gemm(a, b, a_scale=one, b_scale=one), sums * np.float32(0.25))
    groups = (2.0 ** RNG.integers(-4, 4, (5, 2))).astype(np.float32)
    blocks = (2.0 ** RNG.integers(-4, 4, (1, 2))).astype(np.float32)
    halves = [a[:, i : i + 128].astype(np.int64) @ b[:, i : i + 128].astype(np.int64).T
              for i in (0, 128)]
    want = sum(half * groups[:, [i]] * blocks[0, i] for i, half in enumerate(halves))
    got = tessera.gemm(a, b, a_scale=groups, b_scale=blocks, b_rows_per_scale=128, b_group=128)
    assert np.array_equal(got, want.astype(np.float32))


def test_zero_points_are_taken_off_unsigned_codes():
    a = RNG.integers(0, 256, (4, 128)).astype(np.uint8)
    b = RNG.integers(-127, 128, (32, 128)).astype(np.int8)
    zero = RNG.integers(0, 256, 4).astype(np.int32)
    sums = tessera.sum_weight_rows(b)
    assert np.array_equal(sums, b.astype(np.int64).sum(1))
    want = (a.astype(np.int64) - zero[:, None]) @ b.astype(np.int64).T
    scale = np.ones(1, np.float32)
    got = tessera.gemm(a, b, a_scale=scale, a_zero_point=zero, b_scale=scale, b_row_sums=sums)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("sums_in_float", [False, True])
def test_fp8_on_both_sides(sums_in_float):
    x = RNG.standard_normal((6, 256), dtype=np.float32)
    w = RNG.standard_normal((40, 256), dtype=np.float32)
    a, a_scale = tessera.quantize(x, "float8_e4m3fn", per="token")
    b, b_scale = tessera.quantize(w, "float8_e4m3fn", per="token")
    values = (tessera.dequantize(a, a_scale, format="e4m3"),
              tessera.dequantize(b, b_scale, format="e4m3"))
    got = tessera.gemm(
        a, b, a_scale=a_scale.reshape(-1), b_scale=b_scale.reshape(-1), a_dtype="e4m3",
        b_dtype="e4m3", activation="relu", sums_in_float=sums_in_float,
    )
    want = np.maximum(values[0] @ values[1].T, 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_int4_weights_beside_int8_and_int4_tokens():
    random = np.random.default_rng(9)
    a, b = random.integers(-8, 8, (3, 64)), random.integers(-8, 8, (6, 64))

    def packed(codes):
        return ((codes[:, 1::2] & 15) << 4 | codes[:, ::2] & 15).astype(np.uint8)

    token = np.array([0.5, 1, 2], np.float32)
    groups = np.exp2(random.integers(-2, 3, (6, 2))).astype(np.float32)
    want = np.einsum("mgi,ngi,ng->mn", a.reshape(3, 2, 32), b.reshape(6, 2, 32), groups)
    want *= token[:, None]
    form = {"a_scale": token, "b_scale": groups, "b_dtype": "int4"}
    assert np.array_equal(tessera.gemm(a.astype(np.int8), packed(b), **form), want)
    assert np.array_equal(tessera.gemm(packed(a), packed(b), a_dtype="int4", **form), want)


def test_codes_that_do_not_fit_are_refused_by_name():
    a = np.zeros((4, 128), np.int8)
    b = np.zeros((32, 128), np.int8)
    row = np.ones(32, np.float32)
    with pytest.raises(tessera.Error, match=r"a_scale is .*\[5\].* it must be \[1\], \[4\]"):
        tessera.gemm(a, b, a_scale=np.ones(5, np.float32), b_scale=row)
    with pytest.raises(tessera.Error, match="b must be codes of i8"):
        codes = b.astype(np.uint8)
        tessera.gemm(a, codes, a_scale=np.ones(4, np.float32), b_scale=row, b_dtype="e4m3")
    with pytest.raises(tessera.Error, match="b_order is given and a holds codes"):
        order = np.arange(128, dtype=np.int32)
        tessera.gemm(a, b, a_scale=np.ones(4, np.float32), b_scale=row, b_order=order)
    with pytest.raises(tessera.Error, match="no a_scale; codes need their scales"):
        tessera.gemm(a, b, b_scale=row, a_dtype="int8", dtype="float32")
