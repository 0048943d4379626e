# tessera.compat on CPU tensors: each name does what its PyTorch counterpart does.
# SPDX-License-Identifier: MIT
import json
import warnings

import pytest

torch = pytest.importorskip("torch")
import tessera  # noqa: E402
from tessera import compat  # noqa: E402
from torch.nn import functional  # noqa: E402


@pytest.fixture(autouse=True)
def inference():
    torch.manual_seed(3)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="tessera: ")
        yield


def close(got, want, bound=1e-4):
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal):
    q, k, v = (torch.randn(2, heads, 9, 16) for heads in (4, 2, 2))
    mask = torch.ones(9, 9).tril() if causal else torch.ones(9, 9)
    keys, values = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = (q @ keys.transpose(-1, -2) / 4).masked_fill(mask == 0, float("-inf"))
    want = scores.softmax(-1) @ values
    close(compat.flash_attention_forward(q, k, v, causal), want)
    close(compat.CustomFlashAttention(causal)(q, k, v), want)


def test_fused_linear():
    x, w, b = torch.randn(2, 3, 32), torch.randn(16, 32), torch.randn(16)
    close(compat.fused_linear_gelu(x, w, b), functional.gelu(functional.linear(x, w, b)))
    close(compat.fused_linear_silu(x, w), functional.silu(functional.linear(x, w)))
    for kind, function in ((compat.CustomLinearGELU, functional.gelu),
                           (compat.CustomLinearSiLU, functional.silu)):
        layer = kind(32, 16)
        close(layer(x), function(functional.linear(x, layer.weight, layer.bias)))


def test_integer_products():
    x, w, b = torch.randn(2, 3, 64), torch.randn(16, 64), torch.randn(16)
    codes, scale = tessera.quantize(w, "int8", per="token")
    dense = tessera.dequantize(codes, scale)
    close(compat.int8_linear(x, codes, scale, b), functional.linear(x, dense, b), 1e-3)
    for asymmetric in (False, True):
        form = tessera.quantize(w, "int4", per=32, asymmetric=asymmetric)
        dense = tessera.dequantize(*form, format="int4")
        close(compat.int4_linear(x, *form), functional.linear(x, dense), 1e-3)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_linear(bits):
    linear = torch.nn.Linear(128, 32)
    ours = compat.QuantizedLinear(128, 32, bits=bits).quantize_from_float(linear)
    x = torch.randn(3, 128)
    slow = compat.QuantizedLinear(128, 32, bits=bits, use_custom=False).quantize_from_float(linear)
    close(ours(x), slow(x))
    assert (ours(x) - linear(x)).abs().max() < (0.02 if bits == 8 else 0.3)
    with pytest.raises(tessera.Error, match="bits is 3"):
        compat.QuantizedLinear(8, 8, bits=3)
    with pytest.raises(tessera.Error, match=r"want \[32, 128\]"):
        ours.quantize_from_float(torch.nn.Linear(8, 8))


def test_whole_models():
    def make():
        torch.manual_seed(4)
        block = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU())
        return torch.nn.ModuleDict({"body": block, "lm_head": torch.nn.Linear(128, 8)})

    model = make()
    assert compat.replace_linear_with_quantized(model, 8, exclude_layers=["lm_head"]) == 1
    assert isinstance(model["body"][0], compat.QuantizedLinear)
    assert type(model["lm_head"]) is torch.nn.Linear
    x = torch.randn(2, 128)
    close(model["body"](x), make()["body"](x), 3e-2)
    assert compat.patch_model_w4a16(make(), group_size=64) == 1
    with pytest.raises(tessera.Error, match="bits is 2"):
        compat.replace_linear_with_quantized(make(), 2)


@pytest.mark.parametrize("kv", ["plain", "int8", "int4_token"])
def test_paged_cache(kv):
    cache = compat.PagedKVCache(2, 16, num_blocks=8, block_size=4, kv=kv)
    k, v = torch.randn(11, 2, 16), torch.randn(11, 2, 16)
    for name, length in (("a", 7), ("b", 11)):
        cache.append(name, k[: length - 3], v[: length - 3])
        cache.append(name, k[length - 3 : length], v[length - 3 : length])
    assert cache.num_free_blocks == 8 - 2 - 3
    assert cache.waste() == pytest.approx(1 - 18 / 20)
    bound = {"plain": 0, "int8": 0.02, "int4_token": 0.25}[kv]
    got = cache.get("b")
    close(got[0], k, bound)
    q = torch.randn(2, 1, 4, 16)
    out = cache.attention(q, ["a", "b"])
    for i, name in enumerate("ab"):
        keys, values = (x.unsqueeze(0) for x in cache.get(name))
        close(out[i : i + 1], tessera.attention_prefill(q[i : i + 1], keys, values), 1e-3)
    with pytest.raises(tessera.Error, match="need 4 more blocks, and 3 of 8"):
        cache.append("c", torch.randn(16, 2, 16), torch.randn(16, 2, 16))
    cache.free("a")
    cache.free("b")
    with pytest.raises(tessera.Error, match="no sequence 'a'"):
        cache.get("a")


def test_shared_blocks_are_copied_when_written():
    cache = compat.SharedKVCache(2, 8, num_blocks=10, block_size=4)
    k, v = torch.randn(6, 2, 8), torch.randn(6, 2, 8)
    cache.append("a", k, v)
    cache.share_blocks("a", "b")
    assert cache.block_table("a") == cache.block_table("b") and cache.num_free_blocks == 8
    assert cache.num_uses(cache.block_table("a")[1]) == 2
    more = torch.randn(1, 2, 8)
    cache.append("b", more, more)
    assert cache.block_table("a")[0] == cache.block_table("b")[0]
    assert cache.block_table("a")[1] != cache.block_table("b")[1]
    close(cache.get("a")[0], k, 0)
    close(cache.get("b")[0], torch.cat((k, more)), 0)
    assert not cache.copy_on_write("b")
    with pytest.raises(tessera.Error, match="exists already"):
        cache.share_blocks("a", "b")
    cache.free("a")
    cache.free("b")
    assert cache.num_free_blocks == 10


def test_caches_for_transformers():
    pytest.importorskip("transformers")
    from transformers import LlamaConfig

    config = LlamaConfig(num_hidden_layers=2)
    assert compat.PreallocCache(config, 64).kv == "plain"
    assert compat.Int4KIVICache(config, 64).kv == "int4"


def test_benchmark(tmp_path):
    if not hasattr(functional, "scaled_dot_product_attention"):
        pytest.skip("this PyTorch has no attention to compare with")
    bench = compat.KernelBenchmark(device="cpu", warmup=1, repeats=2)
    attention = bench.benchmark_flash_attention(seq_len=32)
    assert attention.tessera_ms > 0 and attention.speedup > 0 and attention.max_error < 2e-2
    bench.benchmark_fused_matmul(4, 64, 64, "silu")
    bench.benchmark_quantized_linear(2, 64, 128, bits=4)
    bench.export_results(tmp_path / "results.json")
    record = json.loads((tmp_path / "results.json").read_text())
    names = [one["name"] for one in record["results"]]
    assert names == ["flash_attention", "fused_linear_silu", "int4_linear"]
    assert len(bench.run_full_suite()) == 8 and bench.skipped == []


def test_the_command_line_exports(tmp_path, capsys):
    if not hasattr(functional, "scaled_dot_product_attention"):
        pytest.skip("this PyTorch has no attention to compare with")
    path = tmp_path / "out.json"
    compat.main(["--export", str(path), "--warmup", "0", "--iters", "1", "--device", "cpu"])
    assert capsys.readouterr().out.count("PyTorch") == 8
    fields = {"name", "shape", "dtype", "device", "tessera_ms", "torch_ms", "max_error", "speedup"}
    assert set(json.loads(path.read_text())["results"][0]) == fields


def test_the_functions_are_a_module_too():
    from tessera.compat import llm_cuda_kernels as kernels

    for name in ("flash_attention_forward", "fused_linear_gelu", "fused_linear_silu",
                 "int8_linear", "int4_linear"):
        assert getattr(kernels, name) is getattr(compat, name)


def test_a_wrong_result_is_not_timed():
    bench = compat.KernelBenchmark(device="cpu", warmup=0, repeats=1)
    x = torch.ones(4)
    with pytest.raises(tessera.Error, match="differs from PyTorch by 1"):
        bench._compare("broken", "4", lambda: 2 * x, lambda: x)
    assert bench.results == []
