# The cases of compare_decode.py: caches in every format, our call, the peers' calls, and float64.
# SPDX-License-Identifier: MIT
"""Sizes and options are those of bench/problems/decode.cpp."""

from contextlib import nullcontext

import tessera
import torch
import torch.nn.functional as F
from compare_cases import DTYPES
from torch.nn.attention import sdpa_kernel

GROUP = 32  # tokens whose columns share a scale
FORMATS = {"plain", "e4m3", "int8", "int4", "int4_token"}  # that are compared
HEADS_CHECKED = 2


class Rows:
    """Random keys or values [pages, rows, heads, d] in one format: as the call gets them, and as
    float64."""

    def __init__(self, format, shape, dtype, is_heads_first):
        self.format, self.dtype = format, dtype
        pages, rows, heads, d = shape
        if is_heads_first:
            shape = (pages, heads, rows, d)
        self.scales = None
        if format == "plain":
            self.data = torch.empty(shape, dtype=dtype, device="cuda").normal_()
        elif format == "e4m3":
            self.data = torch.empty(shape, dtype=dtype, device="cuda").normal_()
            self.data = self.data.clamp_(-448, 448).to(torch.float8_e4m3fn)
        elif format == "int8":
            self.data = torch.randint(-127, 128, shape, dtype=torch.int8, device="cuda")
            self.scales = self.make_scales((pages, heads, rows, 1), 0.014).transpose(1, 2)
        else:
            packed = (*shape[:-1], d // 2)
            self.data = torch.randint(0, 256, packed, dtype=torch.uint8, device="cuda")
            by_row = (pages, heads, rows, 2)
            by_column = (pages, rows // GROUP, heads, d, 2)
            is_by_row = format == "int4_token"
            self.scales = self.make_scales(by_row if is_by_row else by_column, 0.2)
            self.scales[..., 1] *= -7.5
            if is_by_row:
                self.scales = self.scales.transpose(1, 2)
        if is_heads_first:
            self.data = self.data.transpose(1, 2)

    @staticmethod
    def make_scales(shape, size):
        """Random scales: 0.5 to 1.5 times the scale at which values have a variance of about 1."""
        return ((torch.rand(shape, device="cuda") + 0.5) * size).half()

    def bytes(self):
        tensors = [self.data] if self.scales is None else [self.data, self.scales]
        return sum(x.numel() * x.element_size() for x in tensors)

    def wide(self, page):
        """One page [rows, heads, d] in float64."""
        x = self.data[page]
        if self.format in ("plain", "e4m3"):
            return x.float().double()
        scales = self.scales[page].double()
        if self.format == "int8":
            return x.double() * scales
        codes = torch.stack((x & 15, x >> 4), -1).flatten(-2).double()
        if self.format == "int4_token":
            return codes * scales[..., :1] + scales[..., 1:]
        scale, low = scales.repeat_interleave(GROUP, 0).unbind(-1)
        return codes * scale + low


class DecodeCase:
    """One shape: its input sets, and calls on one of them."""

    KNOWN = {"batch", "kv_len", "heads", "kv_heads", "d", "page", "k_format", "tails", "strided"}

    @classmethod
    def knows(cls, shape):
        known = set(shape) <= cls.KNOWN
        return known and shape.get("k_format", "plain") in FORMATS and shape.get("strided", 0) <= 1

    def __init__(self, shape, key):
        if not self.knows(shape):
            raise ValueError(f"options that are not compared: {shape}")
        self.shape, self.dtype = shape, DTYPES[key[0]]
        self.batch, self.kv_len, self.d = shape["batch"], shape["kv_len"], shape["d"]
        self.heads, self.kv_heads = shape["heads"], shape.get("kv_heads", shape["heads"])
        self.page, self.k = shape.get("page", 0), shape.get("k_format", "plain")
        self.v = "int4_token" if self.k == "int4" else self.k

    def flops(self):
        return 4 * self.batch * self.kv_len * self.heads * self.d

    def make(self, has_peers=False):
        """A set; with peers also the same sizes in one piece, in the type of q."""
        batch, rows, heads = self.batch, self.kv_len, self.kv_heads
        shape = (batch, rows, heads, self.d)
        s = {"q": torch.randn(batch, self.heads, self.d, dtype=self.dtype, device="cuda")}
        s["out"] = torch.empty_like(s["q"])
        s["seq_lens"] = torch.full((batch,), rows, dtype=torch.int32, device="cuda")
        if self.page:
            num_pages = rows // self.page
            shape = (batch * num_pages, self.page, heads, self.d)
            order = torch.randperm(batch * num_pages, device="cuda").int()
            s["page_table"] = order.view(batch, num_pages)
        is_heads_first = self.shape.get("strided") == 1
        s["k"], s["v"] = (Rows(f, shape, self.dtype, is_heads_first) for f in (self.k, self.v))
        if self.k == "int4":
            tail = (batch, GROUP, heads, self.d)
            s["k_tail"] = torch.randn(tail, dtype=self.dtype, device="cuda")
            s["tails"] = torch.arange(batch, dtype=torch.int32, device="cuda")
        if has_peers:
            whole = (batch, rows, heads, self.d)
            plain = self.k == "plain" and not self.page
            s["plain"] = [s[n].data if plain else torch.empty(
                whole, dtype=self.dtype, device="cuda").normal_() for n in ("k", "v")]
        return s

    def bytes(self, s):
        rows = s["k"].bytes() + s["v"].bytes()
        return rows + 2 * s["q"].numel() * s["q"].element_size()

    def ours(self, row=None):
        formats = {"k_format": "i4", "v_format": "i4"} if self.v == "int4_token" else {}

        def run(s):
            given = {n: s[n] for n in ("page_table", "k_tail", "tails") if n in s}
            with tessera.using(row=row) if row else nullcontext():
                return tessera.attention_decode(
                    s["q"], s["k"].data, s["v"].data, s["seq_lens"], out=s["out"],
                    k_scales=s["k"].scales, v_scales=s["v"].scales, **formats, **given
                )

        return run

    def find_peer(self, backend, s):
        """A call of PyTorch's attention that works; None if there is none."""
        gqa = {"enable_gqa": True} if self.heads != self.kv_heads else {}

        def run(s):
            k, v = (x.transpose(1, 2) for x in s["plain"])
            with sdpa_kernel(backend):
                y = F.scaled_dot_product_attention(s["q"].unsqueeze(2), k, v, **gqa)
            return y.squeeze(2)

        try:
            run(s)
            torch.cuda.synchronize()
            return run
        except RuntimeError:
            return None

    def sequence(self, s, name, index):
        """Keys or values [kv_len, heads, d] of one sequence in float64."""
        rows = s[name]
        pages = s["page_table"][index].tolist() if self.page else [index]
        wide = torch.cat([rows.wide(page) for page in pages])
        if name == "k" and self.k == "int4":
            begin = (self.kv_len - 1) // GROUP * GROUP
            wide[begin:] = s["k_tail"][index][: self.kv_len - begin].double()
        return wide

    def reference(self, s):
        """(want, pick): float64 for the first heads of the first and the last KV head of the last
        sequence, and how to find them in a result."""
        group = self.heads // self.kv_heads
        kv_heads = sorted({0, self.kv_heads - 1})[:HEADS_CHECKED]
        heads = [h * group for h in kv_heads]
        k, v = (self.sequence(s, n, self.batch - 1)[:, kv_heads] for n in ("k", "v"))
        q = s["q"][-1, heads].double()
        weight = (torch.einsum("hd,jhd->hj", q, k) * self.d**-0.5).softmax(-1)
        want = torch.einsum("hj,jhd->hd", weight, v)
        return want, lambda out: out[-1, heads].double()
