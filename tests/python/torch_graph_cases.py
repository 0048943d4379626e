# Two CUDA graphs replayed at once; test_torch_cuda.py and tools/python_cuda_cases.py run the cases.
# SPDX-License-Identifier: MIT
"""PyTorch captures every graph on the same stream. Scratch memory of two graphs must still be
separate: here they are replayed at the same time on two streams, and each must give the bits of the
same call outside a graph."""

import tessera
import torch

CALLS = 8  # of each graph, so that the two run at the same time
ROUNDS = 10
# batch, tokens, heads, heads of keys and values, head size: cut into few and into many pieces.
DECODES = [(1, 700, 8, 1, 64), (1, 20000, 8, 1, 128), (2, 3000, 8, 2, 128), (3, 5000, 32, 8, 128),
           (4, 8000, 32, 8, 128), (16, 1500, 16, 4, 64), (64, 300, 8, 8, 128)]
PRODUCTS = [(16, 128, 16384), (64, 256, 4096), (1, 512, 8192)]


def random(shape, dtype, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def assert_independent(make_call, what):
    """make_call(seed) gives a function that writes the tensor it returns."""
    calls = [make_call(seed) for seed in (1, 2)]
    wants = [call().clone() for call in calls]
    torch.cuda.synchronize()
    graphs, outs = [], []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                out = call()
        graphs.append(graph)
        outs.append(out)
    streams = [torch.cuda.Stream() for _ in graphs]
    for turn in range(ROUNDS):
        for out in outs:
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for i, (out, want) in enumerate(zip(outs, wants)):
            assert torch.equal(out, want), f"{what}: graph {i}, round {turn}"


def case_decode(dtype):
    for batch, length, heads, kv_heads, d in DECODES:
        def make_call(seed, batch=batch, length=length, heads=heads, kv_heads=kv_heads, d=d):
            q = random((batch, heads, d), dtype, seed)
            k, v = (random((batch, length, kv_heads, d), dtype, 10 * seed + i) for i in range(2))
            lens = torch.full((batch,), length, device="cuda", dtype=torch.int32)
            out = torch.empty_like(q)
            return lambda: tessera.attention_decode(q, k, v, lens, out=out)

        assert_independent(make_call, f"attention_decode {batch} x {length} {heads}/{kv_heads} {d}")


def case_gemm(dtype):
    for m, n, k in PRODUCTS:
        def make_call(seed, m=m, n=n, k=k):
            a, b = random((m, k), dtype, seed), random((n, k), dtype, 10 * seed)
            out = torch.empty(m, n, device="cuda", dtype=dtype)
            return lambda: tessera.gemm(a, b, out=out)

        assert_independent(make_call, f"gemm {m} x {n} x {k}")


CASES = {"decode_in_two_graphs": case_decode, "gemm_in_two_graphs": case_gemm}
