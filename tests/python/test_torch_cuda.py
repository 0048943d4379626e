# Every operation on a GPU against the PyTorch expression of it, and how calls meet streams.
# SPDX-License-Identifier: MIT
import os

import pytest

torch = pytest.importorskip("torch")

import call_cost  # noqa: E402
import tessera  # noqa: E402
import torch_cases  # noqa: E402
import torch_graph_cases  # noqa: E402


def _missing():
    if not torch.cuda.is_available():
        return "torch.cuda is not available"
    return "" if tessera.num_cuda_devices() else "libtessera sees no CUDA device"


@pytest.fixture(autouse=True)
def gpu():
    why = _missing()
    if why and os.environ.get("TESSERA_REQUIRE_GPU") == "1":
        pytest.fail(f"{why}, and TESSERA_REQUIRE_GPU=1")
    if why:
        pytest.skip(why)


@pytest.mark.parametrize("dtype", torch_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", torch_cases.CASES)
def test_agrees_with_pytorch(case, dtype):
    torch_cases.CASES[case]("cuda", dtype)
    torch.cuda.synchronize()


def test_runs_on_the_current_stream():
    # The input is written late on a side stream; a call on any other stream would read it too soon.
    side = torch.cuda.Stream()
    x, weight = torch.zeros(4096, 4096, device="cuda"), torch.ones(4096, device="cuda")
    out = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        tessera.rms_norm(x, weight, 0.0, out=out)
    side.synchronize()
    assert torch.allclose(out, torch.ones_like(out))


def test_a_stream_may_be_named():
    side = torch.cuda.Stream()
    x = torch.zeros(4096, 4096, device="cuda")
    out = torch.zeros_like(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
    with tessera.using(stream=side.cuda_stream):
        tessera.relu(x, out=out)
    side.synchronize()
    assert torch.equal(out, x)


def test_is_captured_in_a_graph():
    x, weight = torch.randn(16, 4096, device="cuda"), torch.ones(4096, device="cuda")
    out = torch.empty_like(x)
    tessera.rms_norm(x, weight, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tessera.rms_norm(x, weight, out=out)
    x.copy_(torch.randn_like(x))
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, tessera.rms_norm(x, weight))


def test_products_are_captured_in_a_graph():
    """Products by every kernel: one token, a few, many, and an epilogue, in one graph."""
    b = torch.randn(1024, 512, device="cuda").bfloat16() / 16
    tokens = [torch.randn(m, 512, device="cuda").bfloat16() for m in (1, 16, 300)]
    outs = [torch.empty(len(a), 1024, device="cuda", dtype=b.dtype) for a in tokens]
    gated = torch.empty(300, 512, device="cuda", dtype=b.dtype)

    def step():
        for a, out in zip(tokens, outs):
            tessera.gemm(a, b, out=out, is_b_static=True)
        tessera.gemm(tokens[2], b, activation="silu", is_gated=True, out=gated)

    torch.cuda.synchronize()  # b is static once it has been written
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for a in tokens:
        a.copy_(torch.randn_like(a))
    graph.replay()
    torch.cuda.synchronize()
    replayed = [out.clone() for out in (*outs, gated)]
    step()
    for got, want in zip(replayed, (*outs, gated)):
        assert torch.equal(got, want)


def test_a_row_of_a_has_the_same_bits_in_any_batch():
    a = torch.randn(300, 1024, device="cuda").bfloat16()
    b = torch.randn(512, 1024, device="cuda").bfloat16() / 32
    with tessera.using(batch_invariant=True):
        want = tessera.gemm(a, b)
        for m in (1, 7, 16, 33, 64, 65, 129, 256):
            assert torch.equal(tessera.gemm(a[:m], b), want[:m]), m


def test_every_product_row_that_is_served_agrees():
    a = torch.randint(-2, 3, (40, 128), device="cuda").bfloat16()
    b = torch.randint(-1, 2, (64, 128), device="cuda").bfloat16()
    want = (a.double() @ b.double().T).bfloat16()
    served = []
    for row in tessera.rows():
        with tessera.using(row=row.name):
            if row.op == "gemm" and tessera.supports(tessera.gemm, a, b):
                assert torch.equal(tessera.gemm(a, b), want), row.name
                served.append(row.name)
    assert served


def qkv(batch, length, dtype=torch.bfloat16, heads=(8, 2), d=128):
    generator = torch.Generator().manual_seed(7)
    shapes = [(batch, length, n, d) for n in (heads[0], heads[1], heads[1])]
    return [torch.randn(shape, generator=generator).to("cuda", dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", torch_cases.DTYPES, ids=str)
def test_a_sequence_has_the_same_bits_alone_ragged_and_in_pages(dtype):
    q, k, v = qkv(3, 300, dtype)
    want = tessera.attention_prefill(q, k, v, causal=True)
    for s in range(3):
        part = slice(s, s + 1)
        got = tessera.attention_prefill(q[part], k[part], v[part], causal=True)
        assert torch.equal(got, want[part]), f"sequence {s} alone"
    starts = torch.arange(0, 901, 300, device="cuda", dtype=torch.int32)
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    got = tessera.attention_prefill(*flat, causal=True, q_starts=starts, kv_starts=starts)
    assert torch.equal(got, want.flatten(0, 1)), "ragged"
    lens = torch.full((3,), 300, device="cuda", dtype=torch.int32)
    order = torch.randperm(57, generator=torch.Generator().manual_seed(1)).cuda()
    pages = []
    for x in (k, v):
        padded = torch.zeros(3, 304, 2, 128, device="cuda", dtype=dtype)
        padded[:, :300] = x
        pages.append(padded.view(57, 16, 2, 128)[order])
    table = order.argsort().int().view(3, 19)
    how = {"causal": True, "k_page_table": table, "kv_lens": lens}
    assert torch.equal(tessera.attention_prefill(q, *pages, **how), want), "pages"


@pytest.mark.parametrize("dtype", torch_cases.DTYPES, ids=str)
def test_a_chunk_of_queries_has_the_bits_of_the_whole(dtype):
    q, k, v = qkv(2, 400, dtype)
    for how in ({"causal": True}, {"window": (100, 0)}, {"causal": True, "softcap": 20.0}):
        want = tessera.attention_prefill(q, k, v, **how)
        for n in (1, 16, 63, 64, 65, 200):
            got = tessera.attention_prefill(q[:, -n:], k, v, **how)
            assert torch.equal(got, want[:, -n:]), (how, n)
        # Keys of later tokens change nothing either.
        got = tessera.attention_prefill(q[:, :150], k[:, :150], v[:, :150], **how)
        assert torch.equal(got, want[:, :150]), how


def test_attention_is_captured_in_a_graph():
    q, k, v = qkv(2, 200)
    out, lse = torch.empty_like(q), torch.empty(2, 8, 200, device="cuda")

    def step():
        tessera.attention_prefill(q, k, v, causal=True, out=out, lse=lse)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    q.copy_(torch.randn_like(q))
    graph.replay()
    torch.cuda.synchronize()
    replayed = out.clone(), lse.clone()
    step()
    assert torch.equal(replayed[0], out) and torch.equal(replayed[1], lse)


def test_a_step_of_decoding_is_captured_in_a_graph():
    """Slots and lengths are read on the GPU, so that one graph serves every step."""
    pages, want_pages = (torch.zeros(2, 4, 16, 2, 128, device="cuda").half() for _ in range(2))
    q, k, v = (torch.zeros(2, n, 128, device="cuda").half() for n in (8, 2, 2))
    table = torch.tensor([[2, 0], [1, 3]], device="cuda", dtype=torch.int32)
    slots = torch.full((2,), -1, device="cuda")
    lens, out = torch.ones(2, device="cuda", dtype=torch.int32), torch.empty_like(q)
    how = {"page_table": table, "longest": 32}

    def step():
        tessera.kv_append(k, v, slots, *pages)
        tessera.attention_decode(q, *pages, lens, out=out, **how)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for i in range(20):
        for x in (q, k, v):
            x.copy_(torch.randn_like(x))
        slots.copy_(table[:, i // 16] * 16 + i % 16)
        lens.fill_(i + 1)
        graph.replay()
        tessera.kv_append(k, v, slots, *want_pages)
        assert torch.equal(pages, want_pages), f"step {i}"
        want = tessera.attention_decode(q, *want_pages, lens, **how)
        assert torch.equal(out, want) and out.any(), f"step {i}"


@pytest.mark.parametrize("dtype", torch_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", torch_graph_cases.CASES)
def test_two_graphs_replayed_at_once_compute_what_each_does_alone(case, dtype):
    torch_graph_cases.CASES[case](dtype)


def test_every_attention_row_that_is_served_agrees():
    """A query parallel to one key and very large returns that key's value exactly."""
    served = []
    for row in tessera.rows():
        if row.op != "attention_prefill" or row.in_dtype == "e4m3":
            continue
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[row.in_dtype]
        for d in (32, 64, 96, 128, 192, 256):
            k = torch.eye(d, device="cuda", dtype=dtype).view(1, d, 1, d)
            v = torch.arange(d, device="cuda").remainder(64).to(dtype).view(1, d, 1, 1)
            v = v.expand(1, d, 1, min(d, 128) if d == 192 else d).contiguous()
            with tessera.using(row=row.name):
                if tessera.supports(tessera.attention_prefill, k, k, v):
                    got = tessera.attention_prefill(k, k, v, scale=512.0, causal=True)
                    assert torch.equal(got, v), (row.name, d)
                    served.append(row.name)
    assert served


def test_large_scores_do_not_overflow():
    q, k, v = qkv(1, 200, torch.float16)
    got = tessera.attention_prefill(q * 60, k * 60, v, causal=True)
    assert got.isfinite().all()


def test_pruning_is_refused_on_a_gpu():
    w = torch.ones(32, 32, device="cuda").half()
    with pytest.raises(tessera.Error, match="prune_2_4: w .*an offline step on the cpu"):
        tessera.prune_2_4(w)


def test_a_mismatched_device_is_refused():
    x, weight = torch.ones(2, 8, device="cuda"), torch.ones(8)
    with pytest.raises(tessera.Error, match="weight is on cpu and .*x on cuda:0"):
        tessera.rms_norm(x, weight)


def test_an_out_of_range_id_shows_as_nan():
    table = torch.ones(4, 8, device="cuda")
    got = tessera.embedding(table, torch.tensor([1, 9], device="cuda"))
    assert got[0].eq(1).all() and got[1].isnan().all()


def test_every_row_can_be_forced_or_says_why_not():
    x, weight = torch.ones(2, 64, device="cuda"), torch.ones(64, device="cuda")
    names = [row.name for row in tessera.rows() if row.op == "rms_norm"]
    assert names
    served = 0
    for name in names:
        with tessera.using(row=name):
            served += tessera.supports(tessera.rms_norm, x, weight)
    assert served >= 1
    with pytest.raises(tessera.Error, match="no_such_row"), tessera.using(row="no_such_row"):
        tessera.rms_norm(x, weight)


def test_cupy_arrays_agree():
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((5, 1000), dtype=cupy.float32)
    weight = cupy.ones(1000, cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        got = tessera.rms_norm(x, weight)
        stream.synchronize()
    want = tessera.rms_norm(torch.from_dlpack(x), torch.from_dlpack(weight))
    assert torch.equal(torch.from_dlpack(got), want)


def test_pytorch_and_cupy_may_be_mixed():
    cupy = pytest.importorskip("cupy")
    x = torch.randn(5, 1000, device="cuda")
    out = cupy.empty((5, 1000), cupy.float32)
    tessera.rms_norm(x, torch.ones(1000, device="cuda"), out=out)
    torch.cuda.synchronize()
    assert torch.equal(torch.from_dlpack(out), tessera.rms_norm(x, torch.ones(1000, device="cuda")))


def test_jax_arrays_are_read():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip(f"JAX runs on {jax.default_backend()} here")
    x = jax.numpy.ones((3, 256)) * 5
    out = torch.empty(3, 256, device="cuda")
    tessera.rms_norm(x, jax.numpy.ones(256), 0.0, out=out)
    assert torch.allclose(out, torch.ones_like(out))


def test_what_a_call_costs():
    """The host's side of a call: launches are not waited for, and the queue is kept short."""
    x, weight = torch.ones(1, 8, device="cuda"), torch.ones(8, device="cuda")
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    wait = torch.cuda.synchronize
    ours = call_cost.rms_norm_cost(x, weight, out, stream, wait)
    theirs = call_cost.microseconds(lambda: torch.nn.functional.layer_norm(x, (8,), weight), wait)
    way = "exchange table" if hasattr(torch.Tensor, "__dlpack_c_exchange_api__") else "capsules"
    print(f"\nPyTorch {torch.__version__} on CUDA, by its {way}: rms_norm(x, weight, out=out)")
    print(f"takes {ours}")
    print(f"PyTorch's layer_norm: {theirs:.2f} us")
    assert ours.whole < 20


def test_what_a_product_costs():
    """The host's cost of a projection. Its kernel takes longer, so launches queue up."""
    a, b = (torch.ones(m, 4096, device="cuda").bfloat16() for m in (16, 4096))
    out = torch.empty_like(a)
    stream = torch.cuda.current_stream().cuda_stream
    wait = torch.cuda.synchronize
    ours = call_cost.gemm_cost(a, b, out, stream, wait)
    theirs = call_cost.microseconds(lambda: torch.nn.functional.linear(a, b), wait)
    print(f"\ngemm(a, b, out=out) of 16x4096x4096 in bfloat16 takes {ours}")
    print(f"PyTorch's linear: {theirs:.2f} us")
    assert ours.whole < 20
