# Every operation in float64 NumPy, and the error that a float32 computation may have.
# SPDX-License-Identifier: MIT
"""Bounds follow from the arithmetic: a float32 operation errs by 2^-24 of its result, a sum of n
terms by n 2^-24 of the sum of magnitudes, and the last rounding by half an ulp of the output type,
for which the public headers allow two ulps."""

import math

import numpy as np

FLOAT = 2.0**-24  # half an ulp of float32, relative
ULP = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}


def wide(x):
    return np.asarray(x, np.float64)


def assert_close(got, want, bound, what=""):
    """|got - want| <= bound everywhere; otherwise shows the worst element."""
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    if got.size == 0:
        return
    bound = np.broadcast_to(np.asarray(bound, np.float64), want.shape)
    excess = np.where(np.isnan(got) & np.isnan(want), 0.0, np.abs(got - want) - bound)
    excess = np.where(np.isnan(excess), np.inf, excess)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[worst] <= 0, (
        f"{what}: element {tuple(int(i) for i in worst)} is {got[worst]!r}, "
        f"want {want[worst]!r} within {bound[worst]:.3g}"
    )


def rounding(want, dtype):
    """Two ulps of the output type, and no less than its smallest number."""
    return 2 * ULP[dtype] * np.abs(want) + SMALLEST[dtype]


def rms_norm(x, weight, eps):
    x, weight = wide(x), wide(weight)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rms_norm_bound(want, hidden, dtype):
    return rounding(want, dtype) + hidden * FLOAT * np.abs(want)


def layer_norm(x, weight, bias, eps):
    x, weight = wide(x), wide(weight)
    centred = x - np.mean(x, axis=-1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps) * weight
    return y if bias is None else y + wide(bias)


def layer_norm_bound(x, weight, bias, want, eps, dtype):
    """The mean errs by hidden * FLOAT of the mean magnitude, which the division spreads."""
    x, weight = wide(x), wide(weight)
    scale = 1 / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)
    size = (np.abs(x) + np.mean(np.abs(x), axis=-1, keepdims=True)) * scale * np.abs(weight)
    shift = 0 if bias is None else np.abs(wide(bias))
    return rounding(want, dtype) + (x.shape[-1] + 8) * FLOAT * size + 2 * FLOAT * shift


def rope_frequencies(rotary_dim, theta=10000.0):
    return theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


def rope_table(num_positions, rotary_dim, theta=10000.0):
    angles = np.outer(np.arange(num_positions), rope_frequencies(rotary_dim, theta))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)


def rope(x, positions, table, style):
    """The rotated x, and the sum of the magnitudes each element is made of."""
    x = np.array(x, np.float64)
    half = table.shape[1] // 2
    cos = wide(table)[positions, None, :half]
    sin = wide(table)[positions, None, half:]
    if style == "half_split":
        first, second = (slice(0, half), slice(half, 2 * half))
    else:
        first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    a, b = x[..., first].copy(), x[..., second].copy()
    size = np.abs(x)
    x[..., first] = a * cos - b * sin
    x[..., second] = b * cos + a * sin
    size[..., first] = size[..., second] = np.abs(a) + np.abs(b)
    return x, size


_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x, approximate):
    x = wide(x)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + (_erf(x / math.sqrt(2)) if x.size else x))


def silu(x):
    x = wide(x)
    return x / (1 + np.exp(-x))


def activation_bound(want, dtype):
    bound = rounding(want, dtype)
    return np.maximum(bound, 1e-6) if dtype == "float32" else bound


ACTIVATIONS = {
    "relu": lambda x: np.maximum(wide(x), 0),
    "silu": silu,
    "gelu": lambda x: gelu(x, "none"),
    "gelu_tanh": lambda x: gelu(x, "tanh"),
}
STEEPEST = 1.13  # the largest slope of an activation


def halves(x):
    """Gate and up of columns that pack_gate_up interleaved by eights."""
    pairs = x.reshape(*x.shape[:-1], -1, 2, 8)
    return [pairs[..., half, :].reshape(*x.shape[:-1], -1) for half in (0, 1)]


def gemm(a, b, bias=None, activation=None, is_gated=False, residual=None):
    """The product with its epilogue, and the error it may have before the last rounding.

    The header grants k 2^-22 of the sum of magnitudes to the product, 2^-22 to each later line, and
    to an activation 2^-14 for 16-bit operands, or in float32 1e-6.
    """
    relative = 0.0 if a.dtype == np.float32 else 2.0**-14
    wide_a, wide_b = wide(a), np.swapaxes(wide(b), -1, -2)
    want = wide_a @ wide_b
    error = a.shape[-1] * 2.0**-22 * (np.abs(wide_a) @ np.abs(wide_b))
    if bias is not None:
        want = want + wide(bias)
        error = error + 2.0**-22 * np.abs(want)
    if is_gated:
        (want, up), (error, up_error) = halves(want), halves(error)
    if activation is not None:
        want = ACTIVATIONS[activation](want)
        error = STEEPEST * error + relative * np.abs(want) + 1e-6
    if is_gated:
        error = np.abs(up) * error + np.abs(want) * up_error + error * up_error
        want = want * up
    if residual is not None:
        want = want + wide(residual)
    return want, error + 2.0**-22 * np.abs(want)


def softmax(x, scale=1.0, mask=None):
    """(result, bound). A float mask is added; a bool mask hides where it is False."""
    z = wide(x) * scale
    if mask is not None and mask.dtype == bool:
        z = np.where(np.broadcast_to(mask, z.shape), z, -np.inf)
    elif mask is not None:
        z = z + mask
    top = np.max(z, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(z - top)
    total = np.sum(e, axis=-1, keepdims=True)
    want = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    spread = np.where(np.isfinite(z), np.abs(z) + np.abs(top), 0)
    return want, (4 * spread.max(initial=0) + x.shape[-1] + 16) * FLOAT * want


def scaled(x, scale, softcap=None, residual=None):
    """(result, bound) of tessera.scale, before the result is rounded."""
    y = scale * wide(x)
    if softcap is not None:
        y = softcap * np.tanh(y / softcap)
    bound = 2.0**-20 * np.abs(y)
    return (y if residual is None else y + wide(residual)), bound


# FP8 by its definition: the value of every code, and the nearest code by search, ties to even.
def fp8_values(exponent_bits, mantissa_bits, bias, largest):
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / 2.0**mantissa_bits
    values = np.where(
        exponent == 0,
        fraction * 2.0 ** (1 - bias),
        (1 + fraction) * 2.0 ** (exponent.astype(float) - bias),
    )
    return np.where(values > largest, np.inf, values)


E4M3 = fp8_values(4, 3, 7, 448.0)
E5M2 = fp8_values(5, 2, 15, 57344.0)


def to_fp8(x, values):
    """Codes of x, rounded to nearest even and saturating; NaN is left to other tests."""
    finite = values[np.isfinite(values)]
    size = np.minimum(np.abs(wide(x)), finite[-1])
    upper = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    below, above = size - finite[upper - 1], finite[upper] - size
    lower_wins = (below < above) | ((below == above) & ((upper - 1) % 2 == 0))
    code = np.where(lower_wins, upper - 1, upper)
    return (code | np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def from_fp8(codes, values):
    return np.where(codes & 128, -1.0, 1.0) * values[codes & 127]
