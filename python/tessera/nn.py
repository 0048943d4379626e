# PyTorch modules over Tessera's kernels, for inference.
# SPDX-License-Identifier: MIT
"""`from tessera import nn`: Linear, RMSNorm, RotaryEmbedding, Attention, GatedMlp.

Each module computes with Tessera where that can serve the call, and in PyTorch where it cannot: if
gradients are wanted, on another device, for a shape or type without a kernel. It says so once.
weights: "plain", "int8", "uint8", "int4", "int4_zero", "e4m3" or "e5m2"; int4 and uint8 have a
scale for every `group_size` elements of a row, the others for a row.
"""

from typing import Any, Optional, Tuple, Union

import torch
from torch.nn import functional

import tessera

from . import _torch_ops as ops
from ._library import Error
from ._torch_weights import WEIGHTS, Codes, check_weights, served

__all__ = ["WEIGHTS", "Attention", "GatedMlp", "Linear", "RMSNorm", "RotaryEmbedding"]

_ACTIVATIONS = {
    None: lambda x: x,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def _check_activation(activation):
    if activation not in _ACTIVATIONS:
        known = ", ".join(map(str, _ACTIVATIONS))
        raise Error(f"activation is {activation!r}; want one of {known}")


class Linear(torch.nn.Module):
    """activation(x . weight^T + bias), with a dense or a quantised weight."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, weights: str = "plain",
        group_size: int = 128, activation: Optional[str] = None, device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        linear = torch.nn.Linear(in_features, out_features, bias, device=device, dtype=dtype)
        self._take(linear, weights, group_size, activation)

    @classmethod
    def from_float(
        cls, linear: torch.nn.Linear, weights: str = "plain", group_size: int = 128,
        activation: Optional[str] = None,
    ) -> "Linear":
        """From a torch.nn.Linear, whose tensors it shares unless the weight is quantised."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made._take(linear, weights, group_size, activation)
        made.train(linear.training)
        return made

    def _take(self, linear, weights, group_size, activation):
        check_weights(weights)
        _check_activation(activation)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weights, self.activation = weights, activation
        self.bias = linear.bias
        if weights == "plain":
            self.weight = linear.weight
        else:
            self.quantized = Codes(linear.weight, weights, group_size)

    def extra_repr(self):
        rest = "" if self.activation is None else f", activation={self.activation}"
        return f"{self.in_features}, {self.out_features}, weights={self.weights}{rest}"

    def dense_weight(self, dtype: torch.dtype) -> torch.Tensor:
        """The weight [out_features, in_features] that is multiplied, in PyTorch's terms."""
        return self.weight if self.weights == "plain" else self.quantized.dequantized(dtype)

    def forward(self, x: torch.Tensor, residual: Optional[torch.Tensor] = None) -> torch.Tensor:
        """With a residual of the result's shape: that is added, in the same kernel."""

        def run():
            rows = x.reshape(-1, self.in_features)
            fused = {"bias": self.bias, "activation": self.activation}
            if residual is not None:
                fused["residual"] = residual.reshape(-1, self.out_features)
            if self.weights == "plain":
                out = ops.gemm(rows, self.weight, is_b_static=True, **fused)
            else:
                out = self.quantized.product(rows, **fused)
            return out.reshape(*x.shape[:-1], self.out_features)

        def fall_back():
            product = functional.linear(x, self.dense_weight(x.dtype), self.bias)
            product = _ACTIVATIONS[self.activation](product)
            return product if residual is None else product + residual

        weight = getattr(self, "weight", None)
        return served("Linear", run, fall_back, x, weight, self.bias, residual)


class RMSNorm(torch.nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight. With a residual: (norm(x + residual), x + residual)."""

    def __init__(
        self, size: Optional[int], eps: float = 1e-6, *,
        weight: Optional[torch.nn.Parameter] = None, device: Any = None, dtype: Any = None,
    ):
        super().__init__()
        self.eps = eps
        if weight is None:
            weight = torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype))
        self.weight = weight

    def extra_repr(self):
        return f"{self.weight.shape[0]}, eps={self.eps}"

    def forward(
        self, x: torch.Tensor, residual: Optional[torch.Tensor] = None
    ) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
        """The norm; with a residual, the norm of the sum and the sum."""

        def run():
            summed = None if residual is None else residual.clone()
            y = ops.rms_norm(x.contiguous(), self.weight, self.eps, summed)
            return y if summed is None else (y, summed)

        def fall_back():
            h = x if residual is None else x + residual
            wide = h.float()
            y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
            y = (y * self.weight.float()).to(x.dtype)
            return y if residual is None else (y, h)

        return served("RMSNorm", run, fall_back, x, residual, self.weight)


class RotaryEmbedding(torch.nn.Module):
    """Rotates q and k [..., num_heads, head_dim] by the positions [...] of their tokens.

    scaling: the "rope_scaling" dictionary of a model's config.json.
    """

    table: torch.Tensor

    def __init__(
        self, rotary_dim: int, max_positions: int = 4096, theta: float = 10000.0, *,
        scaling: Optional[dict] = None, style: str = "half_split", device: Any = None,
    ):
        super().__init__()
        self.rotary_dim, self.style = rotary_dim, style
        like = torch.empty(0, device=device)
        table = tessera.make_rope_table(
            max_positions, rotary_dim, theta, scaling=scaling, like=like)
        self.register_buffer("table", table, persistent=False)

    def _apply(self, fn, recurse=True):
        self.table = self.table.to(fn(torch.empty(0, device=self.table.device)).device)
        return self

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """New tensors; q and k keep their values."""

        def rows(x):
            return x.reshape(-1, *x.shape[-2:]).clone()

        def run():
            flat = positions.reshape(-1).contiguous()
            turned = ops.rope(rows(q), rows(k), flat, self.table, self.style)
            return turned[0].view(q.shape), turned[1].view(k.shape)

        return served("RotaryEmbedding", run, lambda: self._in_pytorch(q, k, positions), q, k)

    def _in_pytorch(self, q, k, positions):
        half = self.rotary_dim // 2
        angles = self.table[positions]
        cos, sin = (part.unsqueeze(-2) for part in (angles[..., :half], angles[..., half:]))

        def turn(x):
            head, rest = x[..., : self.rotary_dim].float(), x[..., self.rotary_dim :]
            if self.style == "half_split":
                a, b = head[..., :half], head[..., half:]
                turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
            else:
                a, b = head[..., ::2], head[..., 1::2]
                turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
            return torch.cat((turned.to(x.dtype), rest), -1)

        return turn(q), turn(k)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = True,
    scale: Optional[float] = None, softcap: Optional[float] = None,
    intervals: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Attention of q [batch, q_len, num_heads, d] over k and v [batch, kv_len, num_kv_heads, d]."""

    def run():
        return ops.attention_prefill(
            q, k, v, causal=causal, scale=scale, softcap=softcap, intervals=intervals
        )

    def fall_back():
        q_len, kv_len = q.shape[1], k.shape[1]
        mask = torch.ones(q_len, kv_len, dtype=torch.bool, device=q.device)
        if causal:
            mask = mask.tril(kv_len - q_len)
        if intervals is not None:
            keys = torch.arange(kv_len, device=q.device)
            begin, end = intervals[..., 0:1], intervals[..., 1:2]  # [batch, q_len, n, 1]
            mask = mask & ((keys >= begin) & (keys < end)).any(-2)
            mask = mask.unsqueeze(1)
        repeats = q.shape[2] // k.shape[2]
        heads = [x.transpose(1, 2) for x in (q, k, v)]
        heads[1:] = [x.repeat_interleave(repeats, 1) for x in heads[1:]]
        scores = heads[0].float() @ heads[1].float().transpose(-1, -2)
        scores = scores * (scale or q.shape[-1] ** -0.5)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return (weights.nan_to_num() @ heads[2].float()).to(q.dtype).transpose(1, 2)

    return served("Attention", run, fall_back, q, k, v)


class Attention(torch.nn.Module):
    """Causal self-attention with rotary embeddings and grouped heads: x [batch, tokens, hidden]."""

    def __init__(
        self, hidden: int, num_heads: int, num_kv_heads: Optional[int] = None,
        head_dim: Optional[int] = None, *, bias: bool = False,
        rope: Optional[RotaryEmbedding] = None, causal: bool = True,
        softcap: Optional[float] = None, weights: str = "plain", group_size: int = 128,
        device: Any = None, dtype: Any = None,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_dim = head_dim or hidden // num_heads
        self.causal, self.softcap = causal, softcap
        rows = (num_heads + 2 * self.num_kv_heads) * self.head_dim
        more: Any = {
            "weights": weights, "group_size": group_size, "device": device, "dtype": dtype}
        self.qkv = Linear(hidden, rows, bias, **more)
        self.out = Linear(num_heads * self.head_dim, hidden, bias, **more)
        self.rope: Optional[RotaryEmbedding] = rope

    def forward(
        self, x: torch.Tensor, positions: Optional[torch.Tensor] = None,
        intervals: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """positions [batch, tokens] or None: 0, 1, 2, ...; intervals as in attention_prefill."""
        batch, tokens = x.shape[:2]
        sizes = [self.num_heads, self.num_kv_heads, self.num_kv_heads]
        qkv = self.qkv(x).view(batch, tokens, sum(sizes), self.head_dim)
        q, k, v = qkv.split(sizes, dim=2)
        if self.rope is not None:
            if positions is None:
                positions = torch.arange(tokens, device=x.device).expand(batch, tokens)
            q, k = self.rope(q, k, positions)
        mixed = attend(q, k, v, causal=self.causal, softcap=self.softcap, intervals=intervals)
        return self.out(mixed.reshape(batch, tokens, -1))


def _interleaved(gate, up):
    """8 rows of gate, the same 8 of up, and so on: what a gated product takes."""
    pairs = (gate.reshape(-1, 8, *gate.shape[1:]), up.reshape(-1, 8, *up.shape[1:]))
    return torch.stack(pairs, 1).reshape(2 * gate.shape[0], *gate.shape[1:])


class GatedMlp(torch.nn.Module):
    """down(activation(gate(x)) * up(x)), gate and up as one product. inter: a multiple of 8."""

    def __init__(
        self, hidden: int, inter: int, *, activation: str = "silu", weights: str = "plain",
        group_size: int = 128, device: Any = None, dtype: Any = None,
    ):
        super().__init__()
        gate, up, down = (
            torch.nn.Linear(*size, bias=False, device=device, dtype=dtype)
            for size in ((hidden, inter), (hidden, inter), (inter, hidden))
        )
        self._take(gate, up, down, activation, weights, group_size)

    @classmethod
    def from_float(
        cls, gate: torch.nn.Linear, up: torch.nn.Linear, down: torch.nn.Linear, *,
        activation: str = "silu", weights: str = "plain", group_size: int = 128,
    ) -> "GatedMlp":
        """From three torch.nn.Linear without biases."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made._take(gate, up, down, activation, weights, group_size)
        made.train(gate.training)
        return made

    def _take(self, gate, up, down, activation, weights, group_size):
        _check_activation(activation)
        if any(linear.bias is not None for linear in (gate, up)):
            raise Error("GatedMlp: gate and up have biases; it takes linear layers without")
        if gate.out_features % 8:
            raise Error(f"GatedMlp: inter is {gate.out_features}; want a multiple of 8")
        self.activation = activation
        both = torch.nn.Linear(gate.in_features, 2 * gate.out_features, bias=False, device="meta")
        with torch.no_grad():
            weight = _interleaved(gate.weight, up.weight)
        both.weight = torch.nn.Parameter(weight, requires_grad=gate.weight.requires_grad)
        self.gate_up = Linear.from_float(both, weights, group_size)
        self.down = Linear.from_float(down, weights, group_size)

    def forward(self, x: torch.Tensor, residual: Optional[torch.Tensor] = None) -> torch.Tensor:
        """With a residual of the shape of x: that is added, in the kernel of `down`."""
        gate_up = self.gate_up

        def run():
            rows = x.reshape(-1, gate_up.in_features)
            fused = {"activation": self.activation, "is_gated": True}
            if gate_up.weights == "plain":
                inner = ops.gemm(rows, gate_up.weight, is_b_static=True, **fused)
            else:
                inner = gate_up.quantized.product(rows, **fused)
            return inner.reshape(*x.shape[:-1], -1)

        def fall_back():
            both = functional.linear(x, gate_up.dense_weight(x.dtype))
            gate, up = both.unflatten(-1, (-1, 2, 8)).unbind(-2)
            return (_ACTIVATIONS[self.activation](gate) * up).flatten(-2)

        inner = served("GatedMlp", run, fall_back, x, getattr(gate_up, "weight", None))
        return self.down(inner, residual)
