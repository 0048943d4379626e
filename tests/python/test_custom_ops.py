# torch.ops.tessera: the registered operations give what the package gives, and trace.
# SPDX-License-Identifier: MIT
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402

if not hasattr(torch.library, "custom_op"):

    def test_says_which_pytorch_it_needs():
        with pytest.raises(ImportError, match="needs PyTorch 2.4 or newer"):
            import tessera.torch  # noqa: F401

else:
    import tessera.torch  # noqa: F401

    DEVICES = ["cpu"] + ["cuda"] * (torch.cuda.is_available() and tessera.num_cuda_devices() > 0)
    OPS = torch.ops.tessera

    def tensors(device):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(6, 128, generator=generator).to(device)
        return x, torch.randn(128, generator=generator).to(device)

    def calls(device):
        """name: (registered call, the package's)."""
        x, weight = tensors(device)
        up = x.flip(0).contiguous()
        ids = torch.tensor([5, 0, 3], device=device)
        q, scale = tessera.quantize(x, "int8")
        return {
            "rms_norm": (lambda: OPS.rms_norm(x, weight), lambda: tessera.rms_norm(x, weight)),
            "rms_norm_quantized": (
                lambda: OPS.rms_norm_quantized(x, weight, "int8"),
                lambda: tessera.rms_norm(x, weight, dtype="int8"),
            ),
            "layer_norm": (
                lambda: OPS.layer_norm(x, weight, weight),
                lambda: tessera.layer_norm(x, weight, weight),
            ),
            "relu": (lambda: OPS.relu(x), lambda: tessera.relu(x)),
            "silu": (lambda: OPS.silu(x), lambda: tessera.silu(x)),
            "gelu": (
                lambda: OPS.gelu(x, "tanh"),
                lambda: tessera.gelu(x, approximate="tanh"),
            ),
            "silu_mul": (lambda: OPS.silu_mul(x, up), lambda: tessera.silu_mul(x, up)),
            "gelu_mul": (lambda: OPS.gelu_mul(x, up), lambda: tessera.gelu_mul(x, up)),
            "softmax": (lambda: OPS.softmax(x, 0.5), lambda: tessera.softmax(x, scale=0.5)),
            "scale": (
                lambda: OPS.scale(x, 0.5, softcap=3.0, residual=up),
                lambda: tessera.scale(x, 0.5, softcap=3.0, residual=up),
            ),
            "embedding": (lambda: OPS.embedding(x, ids), lambda: tessera.embedding(x, ids)),
            "transpose": (lambda: OPS.transpose(x), lambda: tessera.transpose(x)),
            "quantize": (
                lambda: OPS.quantize(x, "int4", group_size=32),
                lambda: tessera.quantize(x, "int4", per=32),
            ),
            "quantize_asymmetric": (
                lambda: OPS.quantize_asymmetric(x, "uint8"),
                lambda: tessera.quantize(x, "uint8"),
            ),
            "dequantize": (
                lambda: OPS.dequantize(q, scale, dtype="bfloat16"),
                lambda: tessera.dequantize(q, scale, dtype="bfloat16"),
            ),
            "reduce": (lambda: OPS.reduce(x, "sum"), lambda: tessera.reduce(x, "sum")),
            "argmax": (lambda: OPS.argmax(x), lambda: tessera.argmax(x)),
            **sampling_calls(x),
            **product_calls(device),
            **attention_calls(device),
        }

    def sampling_calls(x):
        tokens = torch.tensor([1, 0, 5, 127, 3, -1], device=x.device, dtype=torch.int32)
        top_k = torch.full_like(tokens, 20)
        return {
            "sample": (
                lambda: OPS.sample(x, top_k=top_k, positions=tokens),
                lambda: tessera.sample(x, top_k=top_k, positions=tokens),
            ),
            "token_logprobs": (
                lambda: OPS.token_logprobs(x, tokens).nan_to_num(),
                lambda: tessera.token_logprobs(x, tokens).nan_to_num(),
            ),
            "top_logprobs": (
                lambda: OPS.top_logprobs(x, tokens, 5)[1:],
                lambda: tessera.top_logprobs(x, tokens, 5)[1:],
            ),
        }

    def attention_tensors(device):
        generator = torch.Generator().manual_seed(2)
        shapes = (2, 6, 4, 64), (2, 9, 2, 64), (2, 9, 2, 64)
        return [torch.randn(shape, generator=generator).to(device) for shape in shapes]

    def attention_calls(device):
        q, k, v = attention_tensors(device)
        lens = torch.tensor([9, 4], device=device, dtype=torch.int32)
        table = torch.tensor([[1], [0]], device=device, dtype=torch.int32)
        sinks = torch.ones(4, device=device)
        return {
            "attention_prefill": (
                lambda: OPS.attention_prefill(q, k, v, causal=True, left=3, kv_lens=lens),
                lambda: tessera.attention_prefill(
                    q, k, v, causal=True, window=(3, None), kv_lens=lens
                ),
            ),
            "attention_prefill_lse": (
                lambda: OPS.attention_prefill_lse(q, k, v, softcap=4.0, sinks=sinks),
                lambda: tessera.attention_prefill(
                    q, k, v, softcap=4.0, sinks=sinks, return_lse=True
                ),
            ),
            "attention_decode": (
                lambda: OPS.attention_decode(q[:, 0], k, v, lens, table, window=3, longest=9),
                lambda: tessera.attention_decode(
                    q[:, 0], k, v, lens, page_table=table, window=3, longest=9
                ),
            ),
            "attention_decode_lse": (
                lambda: OPS.attention_decode_lse(q[:, :2], k, v, lens, sinks=sinks, scale=0.3),
                lambda: tessera.attention_decode(
                    q[:, :2], k, v, lens, sinks=sinks, scale=0.3, return_lse=True
                ),
            ),
            **cascade_calls(q[:, :2].contiguous(), k[:, :8], v[:, :8], table, sinks),
        }

    def cascade_calls(q, k, v, table, sinks):
        lens = torch.tensor([8, 4], device=q.device, dtype=torch.int32)
        tensors = q, k, v, lens, v, k, lens.flip(0)
        given = {"page_table": table, "shared_page_table": table, "sinks": sinks, "softcap": 3.0}
        parts, lses = torch.stack([q, q.flip(0)]), q.sum(-1).transpose(1, 2)
        lses = torch.stack([lses, lses * 2])
        return {
            "attention_merge": (
                lambda: OPS.attention_merge(parts, lses),
                lambda: tessera.attention_merge(parts, lses),
            ),
            "attention_merge_lse": (
                lambda: OPS.attention_merge_lse(parts, lses),
                lambda: tessera.attention_merge(parts, lses, return_lse=True),
            ),
            "attention_cascade": (
                lambda: OPS.attention_cascade(*tensors, table, scale=0.3, longest=9),
                lambda: tessera.attention_cascade(*tensors, page_table=table, scale=0.3, longest=9),
            ),
            "attention_cascade_lse": (
                lambda: OPS.attention_cascade_lse(*tensors, **given),
                lambda: tessera.attention_cascade(*tensors, **given, return_lse=True),
            ),
        }

    def sparse_weight(device):
        w = torch.randn(64, 128, generator=torch.Generator().manual_seed(1)).half()
        values, meta = tessera.prune_2_4(w)
        return w, values, meta, values.to(device), meta.to(device)

    def product_calls(device):
        x, bias = tensors(device)
        b = torch.randn(128, 128, generator=torch.Generator().manual_seed(1)).to(device)
        x16, b16, scale = x.half(), b.half(), torch.full((1,), 0.1, device=device)
        w, values, meta, *moved = sparse_weight(device)
        return {
            "gemm": (lambda: OPS.gemm(x, b), lambda: tessera.gemm(x, b)),
            "gemm_fused": (
                lambda: OPS.gemm(x, b, bias, "gelu", residual=x, is_b_static=True),
                lambda: tessera.gemm(x, b, bias=bias, activation="gelu", residual=x),
            ),
            "gemm_gated": (
                lambda: OPS.gemm(x16, b16, activation="silu", is_gated=True, dtype="float32"),
                lambda: tessera.gemm(x16, b16, activation="silu", is_gated=True, dtype="float32"),
            ),
            "gemm_to_codes": (
                lambda: OPS.gemm(x16, b16, dtype="int8", out_scale=scale),
                lambda: tessera.gemm(x16, b16, dtype="int8", out_scale=scale),
            ),
            "pack_gate_up": (
                lambda: OPS.pack_gate_up(b, b.flip(0)),
                lambda: tessera.pack_gate_up(b, b.flip(0)),
            ),
            "prune_2_4": (lambda: OPS.prune_2_4(w), lambda: tessera.prune_2_4(w)),
            "expand_2_4": (
                lambda: OPS.expand_2_4(values, meta),
                lambda: tessera.expand_2_4(values, meta),
            ),
            "gemm_2_4": (
                lambda: OPS.gemm_2_4(x16, *moved),
                lambda: tessera.gemm_2_4(x16, *moved),
            ),
        }

    @pytest.mark.parametrize("device", DEVICES)
    @pytest.mark.parametrize("name", calls("cpu"))
    def test_gives_what_the_package_gives(name, device):
        registered, plain = calls(device)[name]
        got, want = registered(), plain()
        got, want = (list(r) if isinstance(r, (tuple, list)) else [r] for r in (got, want))
        for a, b in zip(got, want):
            assert a.dtype == b.dtype and torch.equal(a, b)

    @pytest.mark.parametrize("device", DEVICES)
    def test_residual_and_rope_are_changed_in_place(device):
        x, weight = tensors(device)
        ours, theirs = x.flip(0).contiguous(), x.flip(0).contiguous()
        got = OPS.add_rms_norm(x, ours, weight)
        assert torch.equal(got, tessera.rms_norm(x, weight, residual=theirs))
        assert torch.equal(ours, theirs)
        q, k = x.reshape(6, 2, 64).clone(), x.reshape(6, 2, 64).clone()
        table = tessera.make_rope_table(8, 64, like=x)
        positions = torch.arange(6, device=device)
        OPS.rope(q, k, positions, table)
        want, _ = tessera.rope(x.reshape(6, 2, 64).clone(), None, positions, table)
        assert torch.equal(q, want) and torch.equal(k, want)

    @pytest.mark.parametrize("device", DEVICES)
    def test_the_schemas_and_fakes_hold(device):
        x, weight = tensors(device)
        residual, ids = x.clone(), torch.tensor([1, 2], device=device)
        q, scale = tessera.quantize(x, "int8")
        b = torch.randn(32, 128, generator=torch.Generator().manual_seed(1)).to(device)
        w, values, meta, *moved = sparse_weight(device)
        queries, *pages = attention_tensors(device)
        lens = torch.tensor([9, 4], device=device, dtype=torch.int32)
        samples = {
            "rms_norm": (x, weight),
            "add_rms_norm": (x, residual, weight),
            "rms_norm_quantized": (x, weight, "int8"),
            "layer_norm": (x, weight, None),
            "silu_mul": (x, x.clone()),
            "softmax": (x,),
            "scale": (x, 0.5, 3.0, residual),
            "embedding": (x, ids),
            "transpose": (x,),
            "quantize": (x, "int4"),
            "quantize_asymmetric": (x, "uint8"),
            "dequantize": (q, scale),
            "reduce": (x, "max"),
            "argmax": (x,),
            "sample": (x,),
            "token_logprobs": (x, x[:, 0].int()),
            "top_logprobs": (x, x[:, 0].int(), 3),
            "gemm": (x, b, None, "silu", True),
            "pack_gate_up": (b, b.clone()),
            "prune_2_4": (w,),
            "expand_2_4": (values, meta),
            "gemm_2_4": (x.half(), *moved),
            "attention_prefill": tuple(attention_tensors(device)),
            "attention_prefill_lse": tuple(attention_tensors(device)),
            "attention_decode": (queries[:, 0], *pages, lens),
            "attention_decode_lse": (queries[:, :3], *pages, lens),
            "attention_merge": (pages[0][None], pages[0][..., 0].transpose(1, 2)[None]),
            "attention_merge_lse": (pages[0][None], pages[0][..., 0].transpose(1, 2)[None]),
            "attention_cascade": (queries[:, 0], *pages, lens, *pages, lens),
            "attention_cascade_lse": (queries[:, :1], *pages, lens, *pages, lens),
        }
        for name, args in samples.items():
            utilities = ("test_schema", "test_faketensor")
            torch.library.opcheck(getattr(OPS, name).default, args, test_utils=utilities)

    def test_tensors_without_memory_give_shapes_and_run_nothing():
        x, b = (torch.empty(shape, device="meta") for shape in ((6, 128), (32, 128)))
        out = OPS.gemm(x, b, activation="silu", is_gated=True)
        assert out.device.type == "meta" and out.shape == (6, 16)
        with pytest.raises(tessera.Error):
            tessera.gemm(x, b)

    def test_a_model_traces_through_it():
        x, weight = tensors("cpu")
        step = torch.compile(lambda x: OPS.rms_norm(x, weight) + 1, backend="eager", fullgraph=True)
        assert torch.equal(step(x), tessera.rms_norm(x, weight) + 1)

    def test_a_product_traces_for_any_number_of_tokens():
        x, _ = tensors("cpu")
        b = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))

        def step(x):
            return OPS.gemm(x, b, activation="silu", is_gated=True, is_b_static=True) + 1

        traced = torch.compile(step, backend="eager", fullgraph=True, dynamic=True)
        for num_tokens in (6, 3):
            y = x[:num_tokens]
            want = tessera.gemm(y, b, activation="silu", is_gated=True) + 1
            assert torch.equal(traced(y), want)
