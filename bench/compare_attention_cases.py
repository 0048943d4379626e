# The cases of compare_attention.py: how inputs are made, how Tessera and its peers are called, and
# the reference in float64.
# SPDX-License-Identifier: MIT
"""Sizes and options are those of bench/problems/attention.cpp."""

import json
import math
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import tessera
import torch
import torch.nn.functional as F
from compare_cases import DTYPES
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
ERROR_ROWS = 256  # queries compared with float64, in the first and the last head
WIDEST = 448.0  # of e4m3
# FlashAttention-3, timed by itself on an H200.
ALONE = Path(__file__).resolve().parent.parent / "docs" / "results" / "h200" / "peers.json"


@cache
def _fa3():
    """{(peer, shape): TFLOPS} of prefill."""
    return {(entry["peer"], tuple(sorted(entry["shape"].items()))): entry["tflops"]
            for entry in json.loads(ALONE.read_text())["kernels"]
            if entry["problem"] == "prefill" and entry["peer"].startswith("fa3")}


def fa3_tflops(shape):
    """What FlashAttention-3 reaches on this shape, or None if it was not measured."""
    plain = tuple(sorted(item for item in shape.items() if item[0] != "scales"))
    return _fa3().get(("fa3_fp8" if shape.get("scales") else "fa3", plain))


class Case:
    """One shape: its input sets, and calls on one of them."""

    KNOWN = {"batch", "q_len", "kv_len", "heads", "kv_heads", "d", "dv", "causal"}
    KNOWN |= {"left", "page", "intervals", "scales", "float_sums"}

    def __init__(self, shape, key):
        unknown = set(shape) - self.KNOWN
        if unknown or shape.get("intervals", 0) > 1:
            raise ValueError(f"options of tests, which no workload has: {unknown}")
        self.shape, self.dtype, self.out = shape, DTYPES[key[0]], DTYPES[key[1]]
        self.is_codes = key[0] == "e4m3"
        self.batch, self.q_len = shape["batch"], shape["q_len"]
        self.kv_len = shape.get("kv_len", self.q_len)
        self.heads, self.d = shape["heads"], shape["d"]
        self.kv_heads, self.dv = shape.get("kv_heads", self.heads), shape.get("dv", self.d)
        self.left, self.page = shape.get("left", -1), shape.get("page", 0)
        self.has_intervals = bool(shape.get("intervals"))
        self.sums_in_float = bool(shape.get("float_sums"))
        self.causal = bool(shape.get("causal")) or self.has_intervals

    def flops(self):
        """A causal square counts as half, as usual; a window by the keys it sees."""
        pairs = self.q_len * self.kv_len
        if self.left >= 0:
            seen = (min(self.left + 1, i + 1) for i in range(self.q_len))
            pairs = sum(seen)
        elif self.causal:
            pairs /= 2
        return 2.0 * self.batch * pairs * self.heads * (self.d + self.dv)

    def bytes(self):
        width = torch.empty(0, dtype=self.dtype).element_size()
        keys = self.kv_len * self.kv_heads * (self.d + self.dv)
        out = torch.empty(0, dtype=self.out).element_size() * self.dv
        return self.batch * (width * keys + self.q_len * self.heads * (width * self.d + out))

    def values(self, kind):
        """q, k and v as the peers take them. Outliers are those of the paper on FlashAttention-3:
        one in a thousand has a deviation of 10 more."""

        def draw(length, heads, d):
            x = torch.randn(self.batch, length, heads, d, device="cuda")
            if kind == "outliers":
                x += 10 * torch.randn_like(x) * (torch.rand_like(x) < 1e-3)
            return x.to(self.out)

        return (
            draw(self.q_len, self.heads, self.d),
            draw(self.kv_len, self.kv_heads, self.d),
            draw(self.kv_len, self.kv_heads, self.dv),
        )

    def make(self, kind="normal"):
        """One input set. `plain` is for the peers; `wide` is our input in float64."""
        made = dict(zip(("q", "k", "v"), self.values(kind)))
        made["plain"] = (made["q"], made["k"], made["v"])
        if self.is_codes:
            for name in ("q", "k", "v"):
                scale = made[name].float().abs().amax() / WIDEST
                made[name] = (made[name].float() / scale).to(self.dtype)
                scales = scale.expand(self.batch, self.kv_heads).contiguous()
                made[name + "_scale"] = scales
        made["wide"] = (made["q"], made["k"], made["v"])
        if self.page:
            self.scatter(made)
        if self.has_intervals:
            ends = torch.arange(1, self.q_len + 1, device="cuda") + self.kv_len - self.q_len
            each = torch.stack([torch.zeros_like(ends), ends], -1).int()[:, None]
            made["intervals"] = each.expand(self.batch, -1, -1, -1).contiguous()
        shape = (self.batch, self.q_len, self.heads, self.dv)
        made["out"] = torch.empty(shape, device="cuda", dtype=self.out)
        return made

    def scatter(self, made):
        """Puts k and v into shuffled pages."""
        num_pages = self.batch * self.kv_len // self.page
        order = torch.randperm(num_pages, device="cuda")
        for name in ("k", "v"):
            pages = made[name].reshape(num_pages, self.page, self.kv_heads, -1)
            made[name] = pages[order]
        made["k_page_table"] = order.argsort().int().view(self.batch, -1)
        made["kv_lens"] = torch.full((self.batch,), self.kv_len, device="cuda", dtype=torch.int32)

    def ours(self, row):
        names = ("intervals", "k_page_table", "kv_lens", "q_scale", "k_scale", "v_scale", "out")
        window = (self.left if self.left >= 0 else None, None)
        is_causal = self.causal and not self.has_intervals

        def run(s):
            given = {name: s[name] for name in names if name in s}
            with tessera.using(row=row) if row else nullcontext():
                return tessera.attention_prefill(
                    s["q"], s["k"], s["v"], causal=is_causal, window=window,
                    sums_in_float=self.sums_in_float, **given
                )

        return run

    def peer(self, backend, repeats=False):
        if self.left >= 0:
            return None
        gqa = {"enable_gqa": True} if self.heads != self.kv_heads and not repeats else {}

        def run(s):
            q, k, v = (x.transpose(1, 2) for x in s["repeated" if repeats else "plain"])
            with sdpa_kernel(backend):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **gqa)
            return y.transpose(1, 2)

        return run

    def repeat(self, sets):
        """Repeats every KV head for each of its query heads, for a backend that needs it."""
        group = self.heads // self.kv_heads
        for s in sets:
            q, k, v = s["plain"]
            if "repeated" not in s:
                s["repeated"] = (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2))

    def find_peer(self, backend, sets):
        """A call that works, and its name's ending; (None, "") if there is none."""
        for repeats in (False, True):
            run = self.peer(backend, repeats)
            if run is None or (repeats and self.heads == self.kv_heads):
                return None, ""
            try:
                if repeats:
                    self.repeat(sets)
                run(sets[0])
                torch.cuda.synchronize()
                return run, "_repeated_kv" if repeats else ""
            except RuntimeError:
                continue
        return None, ""

    def reference(self, s, source):
        """(want, pick): float64 for some heads and queries of the last sequence, and how to find
        them in a result."""
        rows = torch.linspace(0, self.q_len - 1, min(ERROR_ROWS, self.q_len), device="cuda").long()
        heads = sorted({0, self.heads - 1})
        groups = [h // (self.heads // self.kv_heads) for h in heads]
        q, k, v = (x[-1].float().double() for x in s[source])
        if source == "wide" and self.is_codes:
            q, k, v = (x * float(s[n + "_scale"][0, 0]) for x, n in zip((q, k, v), "qkv"))
        score = torch.einsum("ihd,jhd->hij", q[rows][:, heads], k[:, groups]) * self.d**-0.5
        position = rows[:, None] + self.kv_len - self.q_len
        key = torch.arange(self.kv_len, device="cuda")[None]
        seen = torch.ones_like(key <= position)
        if self.causal:
            seen &= key <= position
        if self.left >= 0:
            seen &= key >= position - self.left
        weight = score.masked_fill(~seen, -math.inf).softmax(-1)
        want = torch.einsum("hij,jhd->ihd", weight, v[:, groups])
        return want, lambda out: out[-1][rows][:, heads].double()
