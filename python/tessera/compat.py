# Familiar names of hand-written LLM kernels, over Tessera's.
# SPDX-License-Identifier: MIT
"""Functions, modules, caches and a benchmark under the names that kernel projects use for them.

Everything here is thin: new code does better with tessera.nn, tessera.hf and the operations. Heads
come before tokens here, q [batch, num_heads, tokens, head_dim], as in PyTorch's own attention. The
caches for Transformers, Int4KIVICache and PreallocCache, are imported when they are first named.

python -m tessera.compat [--export FILE] [--warmup N] [--iters N] [--device cuda]

runs KernelBenchmark's full suite and prints its results.
"""

import argparse
import types
from typing import Optional, Sequence

import torch

import tessera

from . import nn
from ._compat_bench import BenchmarkResult, KernelBenchmark
from ._compat_cache import PagedKVCache, SharedKVCache
from ._library import Error
from ._torch_weights import Codes, served

__all__ = [
    "BenchmarkResult",
    "CustomFlashAttention",
    "CustomLinearGELU",
    "CustomLinearSiLU",
    "Int4KIVICache",
    "KernelBenchmark",
    "PagedKVCache",
    "PreallocCache",
    "QuantizedLinear",
    "SharedKVCache",
    "flash_attention_forward",
    "fused_linear_gelu",
    "fused_linear_silu",
    "int4_linear",
    "int8_linear",
    "llm_cuda_kernels",
    "patch_model_w4a16",
    "replace_linear_with_quantized",
]

_FORMATS_OF_BITS = {8: "int8", 4: "int4"}


def __getattr__(name):
    if name in ("Int4KIVICache", "PreallocCache"):
        from . import _compat_hf

        return getattr(_compat_hf, name)
    raise AttributeError(f"module 'tessera.compat' has no attribute {name!r}")


def flash_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False,
    scale: Optional[float] = None,
) -> torch.Tensor:
    """Attention of q [batch, num_heads, q_len, d] over k and v [batch, num_kv_heads, kv_len, d]."""
    heads = (x.transpose(1, 2) for x in (q, k, v))
    return nn.attend(*heads, causal=causal, scale=scale).transpose(1, 2)


def _fused(x, weight, bias, activation):
    rows = x.reshape(-1, x.shape[-1])
    out = tessera.gemm(rows, weight, bias=bias, activation=activation)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def fused_linear_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """gelu(x . weight^T + bias) in one kernel; gelu by erf."""
    return _fused(x, weight, bias, "gelu")


def fused_linear_silu(
    x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """silu(x . weight^T + bias) in one kernel."""
    return _fused(x, weight, bias, "silu")


def int8_linear(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """x . (weight * scale)^T + bias: weight int8 [n, k], scale float32 [n] or [n, groups]."""
    rows = x.reshape(-1, x.shape[-1])
    out = tessera.gemm(rows, weight, b_scale=scale, bias=bias)
    return out.reshape(*x.shape[:-1], weight.shape[0])


def int4_linear(
    x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor,
    zero_point: Optional[torch.Tensor] = None, bias: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """The same for packed int4: weight uint8 [n, k / 2], the even column in the low nibble."""
    rows = x.reshape(-1, x.shape[-1])
    out = tessera.gemm(
        rows, weight, b_scale=scale, b_zero_point=zero_point, b_dtype="int4", bias=bias
    )
    return out.reshape(*x.shape[:-1], weight.shape[0])


# The same five functions as a module of their own: tessera.compat.llm_cuda_kernels.int8_linear.
llm_cuda_kernels = types.ModuleType(
    "tessera.compat.llm_cuda_kernels", "Attention and products as functions of PyTorch tensors."
)
for _function in (
    flash_attention_forward, fused_linear_gelu, fused_linear_silu, int8_linear, int4_linear
):
    setattr(llm_cuda_kernels, _function.__name__, _function)


class CustomFlashAttention(torch.nn.Module):
    """flash_attention_forward as a module."""

    def __init__(self, causal=False, scale=None):
        super().__init__()
        self.causal, self.scale = causal, scale

    def forward(self, q, k, v):
        return flash_attention_forward(q, k, v, self.causal, self.scale)


class CustomLinearGELU(nn.Linear):
    """A linear layer with gelu behind it."""

    def __init__(self, in_features, out_features, bias=True, **more):
        super().__init__(in_features, out_features, bias, activation="gelu", **more)


class CustomLinearSiLU(nn.Linear):
    """A linear layer with silu behind it."""

    def __init__(self, in_features, out_features, bias=True, **more):
        super().__init__(in_features, out_features, bias, activation="silu", **more)


class QuantizedLinear(torch.nn.Module):
    """A linear layer with weights of 8 bits (a scale per row) or 4 (per group_size elements).

    use_custom: multiply with Tessera; False: with PyTorch, by the dequantised weight, to compare.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, bits: int = 8,
        group_size: int = 128, use_custom: bool = True,
    ):
        super().__init__()
        self._take(torch.nn.Linear(in_features, out_features, bias), bits, group_size, use_custom)

    @classmethod
    def from_float(
        cls, linear: torch.nn.Linear, bits: int = 8, group_size: int = 128, use_custom: bool = True
    ) -> "QuantizedLinear":
        """From a torch.nn.Linear."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made._take(linear, bits, group_size, use_custom)
        return made.train(linear.training)

    def _take(self, linear, bits, group_size, use_custom):
        if bits not in _FORMATS_OF_BITS:
            raise Error(f"QuantizedLinear: bits is {bits}; want 8 or 4")
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bits, self.group_size, self.use_custom = bits, group_size, use_custom
        self.quantize_from_float(linear)

    def quantize_from_float(self, linear: torch.nn.Linear) -> "QuantizedLinear":
        """Takes over the weight of a torch.nn.Linear, rounded to nearest; returns itself."""
        shape = (linear.out_features, linear.in_features)
        if shape != (self.out_features, self.in_features):
            raise Error(
                f"QuantizedLinear: the layer is {list(shape)}; "
                f"want [{self.out_features}, {self.in_features}]"
            )
        self.quantized = Codes(linear.weight, _FORMATS_OF_BITS[self.bits], self.group_size)
        self.bias = linear.bias
        return self

    def extra_repr(self):
        return f"{self.in_features}, {self.out_features}, bits={self.bits}"

    def forward(self, x):
        def run():
            out = self.quantized.product(x.reshape(-1, self.in_features), bias=self.bias)
            return out.reshape(*x.shape[:-1], self.out_features)

        def fall_back():
            weight = self.quantized.dequantized(x.dtype)
            return torch.nn.functional.linear(x, weight, self.bias)

        if not self.use_custom:
            return fall_back()
        return served("QuantizedLinear", run, fall_back, x, self.bias)


def replace_linear_with_quantized(
    model: torch.nn.Module, bits: int = 8, use_custom: bool = True,
    exclude_layers: Sequence[str] = (), group_size: int = 128,
) -> int:
    """Replaces every torch.nn.Linear of a model, in place; how many.

    exclude_layers: layers whose path contains one of these strings stay as they are.
    """
    count = 0
    for path, parent in list(model.named_modules()):
        for name, module in list(parent.named_children()):
            where = f"{path}.{name}" if path else name
            if type(module) is not torch.nn.Linear or any(word in where for word in exclude_layers):
                continue
            setattr(parent, name, QuantizedLinear.from_float(module, bits, group_size, use_custom))
            count += 1
    return count


def patch_model_w4a16(model: torch.nn.Module, group_size: int = 128) -> int:
    """4-bit weights and 16-bit activations for every linear layer but lm_head; how many."""
    return replace_linear_with_quantized(
        model, bits=4, exclude_layers=("lm_head",), group_size=group_size
    )


def main(arguments=None):
    """The command line: times kernels beside PyTorch, and exports the results as JSON."""
    parser = argparse.ArgumentParser(prog="tessera.compat", description=main.__doc__)
    parser.add_argument("--export", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--warmup", type=int, default=3, help="calls that are not timed")
    parser.add_argument("--iters", type=int, default=20, help="calls that are timed")
    parser.add_argument("--device", help="cuda or cpu; a GPU if there is one")
    options = parser.parse_args(arguments)
    bench = KernelBenchmark(options.device, warmup=options.warmup, repeats=options.iters)
    for result in bench.run_full_suite():
        times = f"{result.tessera_ms:8.4f} ms, PyTorch {result.torch_ms:8.4f} ms"
        print(f"{result.name:20} {result.shape:18} {times}, {result.speedup:.2f} times")
    for line in bench.skipped:
        print("left out:", line)
    if options.export:
        bench.export_results(options.export)


if __name__ == "__main__":
    main()
