# The formats of a KV cache in NumPy: how kv_append quantises a row, and the values of its codes.
# SPDX-License-Identifier: MIT
"""The rules of include/tessera/ops/kv_cache.h in float32, with one rounding per operation, so that
codes and scales must agree bit for bit."""

import numpy as np
import numpy_reference as ref

GROUP = 32  # tokens whose columns share a scale
LARGEST = np.float32(65504)  # of float16
ONE = np.float32(1)

FP8 = {"e4m3": ref.E4M3, "e5m2": ref.E5M2}

# kind: (dtype of its pages in NumPy, elements in one of them, numbers in a row's scale)
FORMATS = {
    "plain": ("float32", 1, 0),
    "e4m3": ("uint8", 1, 0),
    "e5m2": ("uint8", 1, 0),
    "int8": ("int8", 1, 1),
    "uint8": ("uint8", 1, 2),
    "i4": ("uint8", 2, 2),
}


def argument(kind):
    """k_format or v_format of pages in NumPy's types."""
    return kind if kind in ("e4m3", "e5m2", "i4") else None


def stored(scale):
    """A scale as float16 keeps it: finite, and never 0."""
    rounded = np.minimum(scale, LARGEST).astype("float16")
    return np.where(rounded > 0, rounded, np.float16(1))


def finite(x, axis):
    """(x, is_finite): whether all values along the axis are finite; x is 0 where they are not."""
    is_finite = np.isfinite(x).all(axis, keepdims=True)
    return np.where(is_finite, x, np.float32(0)), is_finite


def nan_unless(is_finite, scale):
    return np.where(is_finite, scale, np.float16(np.nan))


def by_range(x, highest, axis):
    """(codes from 0 to `highest`, scale, low); in scale and low the axis has size 1."""
    x, is_finite = finite(x, axis)
    low = x.min(axis, keepdims=True).clip(-LARGEST, LARGEST).astype("float16")
    low = low + np.float16(0)  # no -0
    spread = x.max(axis, keepdims=True) - low.astype("float32")
    scale = stored(spread / np.float32(highest))
    codes = np.rint((x - low.astype("float32")) / scale.astype("float32"))
    codes = np.where(is_finite, codes, 0).clip(0, highest).astype("uint8")
    return codes, nan_unless(is_finite, scale), nan_unless(is_finite, low)


def pack(codes):
    """Two codes of 4 bits a byte, the even element low."""
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpack(packed):
    return np.stack((packed & 15, packed >> 4), -1).reshape(*packed.shape[:-1], -1)


def encode(x, kind, fp8_scale=ONE):
    """(codes, scales) of rows [..., d]; scales float16 [..., 1 or 2], or None."""
    x = np.asarray(x, "float32")
    if kind == "plain":
        return x, None
    if kind in FP8:
        codes = ref.to_fp8(np.nan_to_num(x / fp8_scale), FP8[kind])
        return np.where(np.isfinite(x), codes, np.uint8(0x7F)), None  # NaN
    if kind == "int8":
        x, is_finite = finite(x, -1)
        scale = stored(np.abs(x).max(-1, keepdims=True) / np.float32(127))
        codes = np.rint(x / scale.astype("float32"))
        return codes.clip(-127, 127).astype("int8"), nan_unless(is_finite, scale)
    codes, scale, low = by_range(x, 255 if kind == "uint8" else 15, -1)
    return pack(codes) if kind == "i4" else codes, np.concatenate((scale, low), -1)


def decode(codes, scales, kind, fp8_scale=ONE):
    """The values of quantised rows, in float32."""
    if kind == "plain":
        return codes
    if kind in FP8:
        return ref.from_fp8(codes, FP8[kind]).astype("float32") * fp8_scale
    numbers = (unpack(codes) if kind == "i4" else codes).astype("float32")
    scales = scales.astype("float32")
    worth = numbers * scales[..., :1]
    return worth if kind == "int8" else worth + scales[..., 1:]


def encode_columns(x):
    """(packed codes, scales [heads, d, 2]) of a group of keys [32, heads, d]."""
    codes, scale, low = by_range(np.asarray(x, "float32"), 15, 0)
    return pack(codes), np.stack((scale[0], low[0]), -1)


def decode_columns(packed, scales):
    scales = scales.astype("float32")
    return unpack(packed).astype("float32") * scales[..., 0] + scales[..., 1]


class Pool:
    """Pages of keys or of values with their scales, written and read by loops over tokens.

    They are filled with sevens, so that a write in the wrong place shows.
    """

    def __init__(self, kind, shape, fp8_scales=None):
        num_pages, self.page_size, heads, d = shape
        dtype, per_element, num_scales = FORMATS[kind]
        self.kind = kind
        self.pages = np.full((num_pages, self.page_size, heads, d // per_element), 7, dtype)
        self.scales = fp8_scales if kind in FP8 else None
        if num_scales:
            self.scales = np.full((num_pages, self.page_size, heads, num_scales), 7, "float16")

    def fp8_scale(self):
        has_scales = self.kind in FP8 and self.scales is not None
        return self.scales[:, None] if has_scales else ONE

    def append(self, tokens, slots):
        for token, slot in zip(tokens, slots):
            if slot < 0:
                continue
            place = divmod(int(slot), self.page_size)
            self.pages[place], scales = encode(token, self.kind, self.fp8_scale())
            if scales is not None:
                self.scales[place] = scales

    def row(self, page, row):
        """[heads, d], in float32."""
        has_rows = self.scales is not None and self.kind not in FP8
        scales = self.scales[page, row] if has_rows else None
        return decode(self.pages[page, row], scales, self.kind, self.fp8_scale())

    def copy(self, sources, targets):
        for source, target in zip(sources, targets):
            self.pages[target] = self.pages[source]
            if self.scales is not None and self.kind not in FP8:
                self.scales[target] = self.scales[source]


class ColumnPool:
    """Keys in 4 bits with scales by column. The newest tokens of a sequence are in its tail."""

    kind = "i4"

    def __init__(self, shape, num_tails):
        num_pages, self.page_size, heads, d = shape
        self.pages = np.full((num_pages, self.page_size, heads, d // 2), 7, "uint8")
        self.scales = np.full((num_pages, self.page_size // GROUP, heads, d, 2), 7, "float16")
        self.tail = np.full((num_tails, GROUP, heads, d), 7, "float32")

    def append(self, tokens, slots, tail_slots):
        """One by one: a group is written when the tail has all of it."""
        for token, slot, tail_slot in zip(tokens, slots, tail_slots):
            if slot < 0:
                continue
            tail, place = divmod(int(tail_slot), GROUP)
            self.tail[tail, place] = token
            if place < GROUP - 1:
                continue
            page, row = divmod(int(slot), self.page_size)
            group = self.pages[page, row + 1 - GROUP : row + 1]
            group[:], self.scales[page, row // GROUP] = encode_columns(self.tail[tail])

    def row(self, page, row):
        return decode_columns(self.pages[page, row], self.scales[page, row // GROUP])


def slots_of(table, page_size, sequence, tokens):
    """Where tokens of a sequence lie."""
    tokens = np.asarray(tokens)
    return table[sequence, tokens // page_size] * page_size + tokens % page_size


def gather(pool, table, lens, tails=None):
    """The rows of all sequences, concatenated: [tokens, heads, d] in float32."""
    rows = []
    for s, length in enumerate(lens):
        for t in range(length):
            is_in_tail = tails is not None and t // GROUP == (length - 1) // GROUP
            page, row = table[s, t // pool.page_size], t % pool.page_size
            rows.append(pool.tail[tails[s], t % GROUP] if is_in_tail else pool.row(page, row))
    return np.stack(rows)
