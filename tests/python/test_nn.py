# tessera.nn against PyTorch, on the CPU.
# SPDX-License-Identifier: MIT
import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
import tessera  # noqa: E402
from tessera import nn  # noqa: E402
from tessera._torch_weights import FORMS, Codes, _told  # noqa: E402


@pytest.fixture(autouse=True)
def inference():
    torch.manual_seed(5)
    _told.clear()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a fall-back would hide what is tested
        yield


def close(got, want, bound=2e-5):
    assert got.shape == want.shape and got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)


def expect_fall_back(module, *inputs):
    """The result of the same module in PyTorch, which says so once."""
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    with torch.enable_grad(), pytest.warns(RuntimeWarning, match="records no gradients"):
        out = module(*inputs)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        module(*inputs)
    return out


def detached(outs):
    return [out.detach() for out in (outs if isinstance(outs, tuple) else (outs,))]


@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_that_of_pytorch(bias):
    linear = torch.nn.Linear(96, 48, bias)
    ours = nn.Linear.from_float(linear)
    x = torch.randn(2, 3, 96)
    close(ours(x), linear(x))
    residual = torch.randn(2, 3, 48)
    close(ours(x, residual), linear(x) + residual)
    assert ours.weight is linear.weight
    close(expect_fall_back(ours, x).detach(), linear(x))


@pytest.mark.parametrize("weights", list(FORMS))
def test_quantised_linear_multiplies_what_its_codes_stand_for(weights):
    linear = torch.nn.Linear(256, 64)
    ours = nn.Linear.from_float(linear, weights, group_size=64, activation="gelu")
    dense = ours.dense_weight(torch.float32)
    bound = {"int8": 0.02, "uint8": 0.01, "e4m3": 0.07, "e5m2": 0.13}.get(weights, 0.16)
    assert (dense - linear.weight).abs().max() <= bound * linear.weight.abs().max()
    x = torch.randn(5, 256)
    want = torch.nn.functional.gelu(torch.nn.functional.linear(x, dense, linear.bias))
    close(ours(x), want, 1e-4)
    close(expect_fall_back(ours, x).detach(), want, 1e-4)


def test_quantised_weights_survive_conversions_and_files(tmp_path):
    ours = nn.Linear(128, 64, weights="int4_zero")
    x = torch.randn(2, 128)
    want = ours(x)
    torch.save(ours.state_dict(), tmp_path / "w.pt")
    other = nn.Linear(128, 64, weights="int4_zero")
    other.load_state_dict(torch.load(tmp_path / "w.pt"))
    close(other(x), want)
    half = copy.deepcopy(ours).to(torch.bfloat16)
    assert half.quantized.scale.dtype == torch.float32
    close(half(x.bfloat16()).float(), want, 3e-2)


def test_packed_codes_are_the_same_weight():
    codes = Codes(torch.randn(64, 128), "int4_zero", 64)
    want = codes.dequantized(torch.float32)
    packed = tessera.pack_weight(codes.codes, codes.scale, codes.zero_point)
    codes.codes, codes.scale, codes.zero_point = packed
    codes.packing = "fragments"
    close(codes.dequantized(torch.float32), want, 0)
    x = torch.randn(3, 128)
    close(codes.product(x), x @ want.T, 1e-4)


def test_rms_norm():
    norm = nn.RMSNorm(64, eps=1e-6)
    norm.weight.copy_(torch.rand(64))
    x, residual = torch.randn(2, 5, 64), torch.randn(2, 5, 64)
    want = torch.nn.functional.rms_norm(x, (64,), norm.weight, 1e-6) if hasattr(
        torch.nn.functional, "rms_norm") else None
    if want is not None:
        close(norm(x), want)
    close(expect_fall_back(norm, x).detach(), norm(x))
    kept = residual.clone()
    for one, other in zip(norm(x, residual), (norm(x + residual), x + residual)):
        close(one, other)
    assert torch.equal(kept, residual)
    _told.clear()
    for one, other in zip(detached(expect_fall_back(norm, x, residual)), norm(x, residual)):
        close(one, other)


@pytest.mark.parametrize("style", ["half_split", "interleaved"])
def test_rotary_embedding(style):
    rope = nn.RotaryEmbedding(16, 64, style=style)
    q, k = torch.randn(2, 7, 4, 24), torch.randn(2, 7, 2, 24)
    positions = torch.arange(7).expand(2, 7) + 3
    got = rope(q, k, positions)
    for one, other in zip(got, detached(expect_fall_back(rope, q, k, positions))):
        close(one, other)
    close(got[0].norm(dim=-1), q.norm(dim=-1), 1e-4)
    close(got[0][..., 16:], q[..., 16:], 0)


def test_attention_and_its_layer():
    q, k, v = torch.randn(2, 5, 4, 16), torch.randn(2, 9, 2, 16), torch.randn(2, 9, 2, 16)
    intervals = torch.tensor([[0, 9], [2, 9]], dtype=torch.int32)
    intervals = intervals[:, None, None, :].expand(2, 5, 1, 2).contiguous()
    for more in ({}, {"causal": False}, {"softcap": 5.0}, {"intervals": intervals}):
        got = nn.attend(q, k, v, **more)
        _told.clear()
        with torch.enable_grad(), pytest.warns(RuntimeWarning):
            close(got, nn.attend(q.clone().requires_grad_(), k, v, **more).detach())
    for weights in ("plain", "int8"):
        layer = nn.Attention(64, 4, 2, rope=nn.RotaryEmbedding(16), weights=weights)
        x = torch.randn(2, 5, 64)
        close(layer(x)[:, :3], layer(x[:, :3]), 1e-4)  # causal
        _told.clear()
        close(expect_fall_back_all(layer, x), layer(x), 1e-4)


def expect_fall_back_all(module, x):
    with torch.enable_grad(), pytest.warns(RuntimeWarning):
        return module(x.clone().requires_grad_()).detach()


@pytest.mark.parametrize("weights", ["plain", "int8", "int4", "e4m3"])
def test_gated_mlp(weights):
    made = [torch.nn.Linear(*size, bias=False) for size in ((64, 128), (64, 128), (128, 64))]
    mlp = nn.GatedMlp.from_float(*made, weights=weights, group_size=32)
    x = torch.randn(2, 3, 64)
    want = made[2](torch.nn.functional.silu(made[0](x)) * made[1](x))
    bound = 1e-5 if weights == "plain" else 0.15
    assert (mlp(x) - want).abs().max() <= bound * max(1, want.abs().max().item())
    close(mlp(x, 2 * x), mlp(x) + 2 * x, 1e-4)
    close(expect_fall_back_all(mlp, x), mlp(x), 1e-4)


def test_refusals():
    with pytest.raises(tessera.Error, match="weights is 'int3'"):
        nn.Linear(8, 8, weights="int3")
    with pytest.raises(tessera.Error, match="activation is 'swish'"):
        nn.Linear(8, 8, activation="swish")
    with pytest.raises(tessera.Error, match="multiple of 8"):
        nn.GatedMlp(8, 12)


def test_says_why_pytorch_does_the_work():
    linear = nn.Linear(8, 8, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="tessera: Linear runs in PyTorch: gemm"):
        linear(torch.randn(2, 8, dtype=torch.float64))
