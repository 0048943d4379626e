# Attention against float64 in every layout, with every mask; torch_cases.py lists the cases.
# SPDX-License-Identifier: MIT
"""Bounds are those of attention_reference.py; on a GPU weights are also rounded to the type of v.
These bounds hold for the worst element. The root mean square of all errors has a tighter bound,
which tf32 arithmetic on float32 would not meet."""

import attention_reference as attention
import numpy as np
import tessera
import torch
import torch.nn.functional as F
from torch_check import assert_close, assert_same, normal

# d_k, d_v
HEAD_DIMS = [(64, 64), (96, 96), (128, 128), (256, 256), (192, 128), (32, 64)]
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
RMS = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def to_numpy(x):
    return x.double().cpu().numpy() if x.is_floating_point() else x.cpu().numpy()


def tensors(q_len, kv_len, heads, dims, device, dtype, batch=2):
    num_heads, num_kv_heads = heads
    q = normal((batch, q_len, num_heads, dims[0]), device, dtype)
    k = normal((batch, kv_len, num_kv_heads, dims[0]), device, dtype, 1)
    return q, k, normal((batch, kv_len, num_kv_heads, dims[1]), device, dtype, 2)


def on_device(how, device):
    return {
        name: torch.from_numpy(x.copy()).to(device) if isinstance(x, np.ndarray) else x
        for name, x in how.items()
    }


def compare(got, lse, want, what, roundoff, rms):
    device = got.device
    wide = torch.from_numpy(want.out).to(device)
    kind = str(got.dtype).rpartition(".")[2]
    assert_close(got, wide, torch.from_numpy(want.bound(kind, roundoff)).to(device), what)
    error = (got.double() - wide).norm() / wide.norm().clamp(min=1e-300)
    assert float(error) <= rms, f"{what}: relative error {float(error):.3g}, at most {rms:.3g}"
    nothing = torch.from_numpy(np.isneginf(want.lse)).to(device)
    assert_same(torch.isneginf(lse), nothing, f"{what}: lse of queries that see nothing")
    wide = torch.from_numpy(want.lse).to(device).masked_fill(nothing, 0)
    bound = torch.from_numpy(want.lse_error).to(device)
    assert_close(lse.masked_fill(nothing, 0), wide, bound, f"{what}: lse")


def check(want, q, k, v, what, **how):
    got, lse = tessera.attention_prefill(q, k, v, return_lse=True, **on_device(how, q.device))
    assert got.dtype == q.dtype
    roundoff = ROUNDOFF[q.dtype] if q.is_cuda else 0.0
    compare(got, lse, want, what, roundoff, RMS[q.dtype])


def case_attention(device, dtype):
    """Every pair of head sizes, with whole tiles and parts of them."""
    for dims in HEAD_DIMS:
        for q_len, kv_len, heads in ((1, 1, (2, 2)), (65, 129, (4, 2)), (200, 200, (2, 1))):
            q, k, v = tensors(q_len, kv_len, heads, dims, device, dtype)
            for causal in (False, True):
                want = attention.attend_batch(*map(to_numpy, (q, k, v)), causal=causal)
                check(want, q, k, v, f"{dims} {q_len} {kv_len} causal={causal}", causal=causal)


def case_attention_masks(device, dtype):
    for dims, q_len, kv_len in (((64, 64), 70, 150), ((128, 128), 150, 70)):
        q, k, v = tensors(q_len, kv_len, (4, 2), dims, device, dtype)
        for name in attention.FEATURES:
            how = attention.features(name, q_len, kv_len, 4, 2)
            want = attention.attend_batch(*map(to_numpy, (q, k, v)), **how)
            check(want, q, k, v, f"{name} {dims}", **how)


def case_ragged_attention(device, dtype):
    starts = np.int32([0, 70, 70, 71, 200]), np.int32([0, 130, 140, 140, 300])
    for dims in ((64, 64), (128, 128)):
        q, k, v = (x[0] for x in tensors(200, 300, (4, 2), dims, device, dtype, 1))
        for name in attention.FEATURES:
            how = attention.features(name, 200, 300, 4, 1)
            if "intervals" in how:
                how["intervals"] = how["intervals"][0]
            how.update(q_starts=starts[0], kv_starts=starts[1])
            want = attention.attend_ragged(*map(to_numpy, (q, k, v)), **how)
            check(want, q, k, v, f"ragged {name} {dims}", **how)


def case_paged_attention(device, dtype):
    """Shuffled pages, with NaN wherever no token lies."""
    lens = np.int32([200, 0, 77])
    for dims, page_size in (((64, 64), 16), ((128, 128), 16), ((128, 128), 64), ((128, 128), 1)):
        q, k, v = tensors(90, 200, (4, 2), dims, device, dtype, 3)
        wide = [to_numpy(x) for x in (q, k, v)]
        k_pages, k_table = attention.paged(wide[1], lens, page_size)
        v_pages, v_table = attention.paged(wide[2], lens, page_size, 5)
        pages = [torch.from_numpy(x).to(device, dtype) for x in (k_pages, v_pages)]
        tables = {"k_page_table": k_table, "v_page_table": v_table, "kv_lens": lens}
        for name in ("full", "causal", "window", "all", "intervals"):
            how = attention.features(name, 90, 200, 4, 3)
            want = attention.attend_batch(*wide, kv_lens=lens, **how)
            check(want, q, *pages, f"pages of {page_size} {name} {dims}", **tables, **how)
    starts = np.int32([0, 90, 90, 200])
    q, wide_q = q.flatten(0, 1)[:200], wide[0].reshape(270, 4, 128)[:200]
    keys = [np.concatenate([x[s, :n] for s, n in enumerate(lens)]) for x in wide[1:]]
    kv_starts = np.int32([0, 200, 200, 277])
    how = {"causal": True, "q_starts": starts}
    want = attention.attend_ragged(wide_q, *keys, kv_starts=kv_starts, **how)
    check(want, q, *pages, "ragged over pages", **tables, **how)


def case_attention_of_heads_apart(device, dtype):
    q, k, v = tensors(100, 130, (4, 2), (64, 64), device, dtype)
    want = attention.attend_batch(*map(to_numpy, (q, k, v)), causal=True)
    first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    check(want, *first, "heads before tokens", causal=True)
    both = torch.cat([k, v], 2)
    check(want, q, both[:, :, :2], both[:, :, 2:], "k and v in one tensor", causal=True)
    out = torch.full((2, 4, 100, 64), 7, device=device, dtype=dtype).transpose(1, 2)
    assert tessera.attention_prefill(q, k, v, causal=True, out=out) is out
    assert_same(out, tessera.attention_prefill(q, k, v, causal=True), "strided out")
    assert tessera.attention_prefill(q, k, v, causal=True, out=q) is q
    assert_same(q, out, "out is q")


def case_attention_of_codes(device, dtype):
    """FP8 weights have 4 bits, and those below 2^-10 of the largest may vanish."""
    if dtype == torch.float32:
        return  # the result of quantised input has 16 bits
    for dims in ((64, 64), (128, 128), (256, 256)):
        values = tensors(100, 150, (4, 2), dims, device, torch.float32)
        quantized = [tessera.quantize(x.flatten(0, 2), "e4m3", per="tensor") for x in values]
        codes = [q.reshape(x.shape) for (q, _), x in zip(quantized, values)]
        scales = [s.expand(2, 2).contiguous() for _, s in quantized]
        wide = [
            to_numpy(tessera.dequantize(q, s, format="e4m3").reshape(x.shape))
            for (q, s), x in zip(quantized, values)
        ]
        how = dict(zip(("q_scale", "k_scale", "v_scale"), scales), causal=True)
        want = attention.attend_batch(*wide, causal=True)
        got, lse = tessera.attention_prefill(
            *codes, return_lse=True, dtype=dtype, format="e4m3", **how
        )
        assert got.dtype == dtype
        if device == "cpu":
            compare(got, lse, want, f"codes {dims}", 0.0, RMS[dtype])
            same = tessera.attention_prefill(
                *codes, dtype=dtype, format="e4m3", sums_in_float=True, **how
            )
            assert_same(same, got, "the CPU sums in double anyway")
            continue
        bound = 2.0**-4 * want.size + want.size.max() * 2.0**-5
        assert_close(got, torch.from_numpy(want.out).to(device), torch.from_numpy(bound).to(device))
        error = np.linalg.norm(to_numpy(got) - want.out) / np.linalg.norm(want.out)
        assert error <= 6e-2, f"codes {dims}: relative error {error:.3g}"
        if dims != (256, 256):
            finer = tessera.attention_prefill(
                *codes, dtype=dtype, format="e4m3", sums_in_float=True, **how
            )
            error = np.linalg.norm(to_numpy(finer) - want.out) / np.linalg.norm(want.out)
            assert error <= 6e-2, f"codes {dims}, sums in float: relative error {error:.3g}"
        assert np.abs(to_numpy(lse) - want.lse).max() <= 2e-2


def case_attention_is_that_of_pytorch(device, dtype):
    if not hasattr(F, "scaled_dot_product_attention"):
        return
    for dims in ((64, 64), (128, 128)):
        q, k, v = tensors(130, 130, (4, 4), dims, device, dtype)
        for causal in (False, True):
            heads = [x.double().transpose(1, 2) for x in (q, k, v)]
            want = F.scaled_dot_product_attention(*heads, is_causal=causal).transpose(1, 2)
            got = tessera.attention_prefill(q, k, v, causal=causal).double()
            error = float((got - want).norm() / want.norm())
            assert error <= RMS[dtype], f"{dims} causal={causal}: relative error {error:.3g}"


def case_dropout_is_the_same_everywhere(device, dtype):
    """Scores of 0 and values of 1: a result counts the weights that were kept."""
    q, k = (torch.zeros(2, n, 4, 64, dtype=dtype) for n in (100, 64))
    v = torch.ones(2, 64, 4, 64, dtype=dtype)
    how = {"dropout_rate": 0.5, "dropout_seed": 2**33 + 7}
    want = tessera.attention_prefill(q, k, v, **how)
    got = tessera.attention_prefill(q.to(device), k.to(device), v.to(device), **how)
    assert_same(got.cpu(), want, "dropout")
