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
        samples = {
            "rms_norm": (x, weight),
            "add_rms_norm": (x, residual, weight),
            "rms_norm_quantized": (x, weight, "int8"),
            "layer_norm": (x, weight, None),
            "silu_mul": (x, x.clone()),
            "softmax": (x,),
            "embedding": (x, ids),
            "transpose": (x,),
            "quantize": (x, "int4"),
            "quantize_asymmetric": (x, "uint8"),
            "dequantize": (q, scale),
            "reduce": (x, "max"),
            "argmax": (x,),
        }
        for name, args in samples.items():
            utilities = ("test_schema", "test_faketensor")
            torch.library.opcheck(getattr(OPS, name).default, args, test_utils=utilities)

    def test_a_model_traces_through_it():
        x, weight = tensors("cpu")
        step = torch.compile(lambda x: OPS.rms_norm(x, weight) + 1, backend="eager", fullgraph=True)
        assert torch.equal(step(x), tessera.rms_norm(x, weight) + 1)
