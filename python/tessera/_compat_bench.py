# A few kernels timed against PyTorch from Python.
# SPDX-License-Identifier: MIT
"""Numbers of record come from `tessera bench`; this compares what a Python program would see."""

import dataclasses
import json
import statistics
import time
from typing import Any, Dict, List, Optional

import torch
from torch.nn import functional

import tessera

from ._library import Error
from ._torch_weights import Codes

_ACTIVATIONS = ("gelu", "silu", "relu")


@dataclasses.dataclass(frozen=True)
class BenchmarkResult:
    """One comparison. Times are medians in milliseconds, with the calls' cost in Python."""

    name: str
    shape: str
    dtype: str
    device: str
    tessera_ms: float
    torch_ms: float
    max_error: float  # largest difference from PyTorch, over the largest value

    @property
    def speedup(self) -> float:
        return self.torch_ms / self.tessera_ms


class KernelBenchmark:
    """Compares kernels with PyTorch. A result that is wrong is an Error, and is not timed."""

    def __init__(self, device: Optional[str] = None, dtype=None, warmup=3, repeats=20):
        has_gpu = torch.cuda.is_available() and tessera.num_cuda_devices() > 0
        self.device = device or ("cuda" if has_gpu else "cpu")
        self.dtype = dtype or (torch.float32 if self.device == "cpu" else torch.bfloat16)
        self.warmup, self.repeats = warmup, repeats
        self.results: List[BenchmarkResult] = []

    def _random(self, *shape):
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def _wait(self):
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _median_ms(self, run):
        times = []
        for i in range(self.warmup + self.repeats):
            self._wait()
            begin = time.perf_counter()
            run()
            self._wait()
            if i >= self.warmup:
                times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)

    def _compare(self, name, shape, ours, theirs, bound=2e-2):
        with torch.no_grad():
            got, want = ours().float(), theirs().float()
            error = ((got - want).abs().max() / want.abs().max().clamp(min=1e-6)).item()
            if not error <= bound:
                differs = f"differs from PyTorch by {error:.2g}; at most {bound:.2g} is right"
                raise Error(f"{name} {shape}: {differs}")
            result = BenchmarkResult(
                name, shape, str(self.dtype).replace("torch.", ""), self.device,
                self._median_ms(ours), self._median_ms(theirs), error,
            )
        self.results.append(result)
        return result

    def benchmark_flash_attention(
        self, batch=1, num_heads=8, seq_len=512, head_dim=64, causal=True
    ) -> BenchmarkResult:
        """Attention over a prompt, against scaled_dot_product_attention."""
        q, k, v = (self._random(batch, seq_len, num_heads, head_dim) for _ in range(3))
        query, key, value = (x.transpose(1, 2) for x in (q, k, v))
        return self._compare(
            "flash_attention", f"{batch}x{num_heads}x{seq_len}x{head_dim}",
            lambda: tessera.attention_prefill(q, k, v, causal=causal),
            lambda: functional.scaled_dot_product_attention(
                query, key, value, is_causal=causal).transpose(1, 2),
        )

    def benchmark_fused_matmul(self, m=64, n=1024, k=1024, activation="gelu") -> BenchmarkResult:
        """A linear layer with its activation, against the two calls of PyTorch."""
        a, b, bias = self._random(m, k), self._random(n, k) / k**0.5, self._random(n)
        function: Dict[str, Any] = {name: getattr(functional, name) for name in _ACTIVATIONS}
        if activation not in function:
            raise Error(f"activation is {activation!r}; want one of {', '.join(function)}")
        return self._compare(
            f"fused_linear_{activation}", f"{m}x{n}x{k}",
            lambda: tessera.gemm(a, b, bias=bias, activation=activation),
            lambda: function[activation](functional.linear(a, b, bias)),
        )

    def benchmark_quantized_linear(self, m=1, n=1024, k=1024, bits=8) -> BenchmarkResult:
        """A product with a quantised weight, against PyTorch with the dense one it stands for."""
        if bits not in (8, 4):
            raise Error(f"bits is {bits}; want 8 or 4")
        a = self._random(m, k)
        codes = Codes(self._random(n, k) / k**0.5, "int8" if bits == 8 else "int4")
        codes.settle_packing(a)
        dense = codes.dequantized(self.dtype)
        return self._compare(
            f"int{bits}_linear", f"{m}x{n}x{k}", lambda: codes.product(a),
            lambda: functional.linear(a, dense),
        )

    def run_full_suite(self) -> List[BenchmarkResult]:
        """Attention, fused products and quantised ones at a few shapes; what has no kernel is left
        out and listed in `skipped`."""
        cases: List[Any] = [
            (self.benchmark_flash_attention, {"seq_len": length}) for length in (128, 512)]
        cases += [(self.benchmark_fused_matmul, {"activation": a}) for a in ("gelu", "silu")]
        cases += [(self.benchmark_quantized_linear, {"bits": b, "m": m})
                  for b in (8, 4) for m in (1, 16)]
        self.skipped: List[str] = []
        begin = len(self.results)
        for run, arguments in cases:
            try:
                run(**arguments)
            except Error as error:
                if "differs from PyTorch" in str(error):
                    raise
                self.skipped.append(f"{run.__name__} {arguments}: {error}")
        return self.results[begin:]

    def export_results(self, path) -> None:
        """Writes the results so far as JSON, with the versions that made them."""
        record = {
            "tessera": tessera.__version__,
            "commit": tessera.__commit__,
            "torch": torch.__version__,
            "results": [{**dataclasses.asdict(one), "speedup": one.speedup}
                        for one in self.results],
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=2)
            file.write("\n")
