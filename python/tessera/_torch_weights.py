# Quantised weights of PyTorch modules: made by Tessera, multiplied by Tessera or, if that cannot
# serve, by PyTorch.
# SPDX-License-Identifier: MIT
"""What tessera.nn and tessera.compat share."""

import warnings
from typing import NamedTuple, Optional

import torch

import tessera

from . import _torch_ops as ops
from ._library import Error


class Form(NamedTuple):
    """How the codes of a weight format are made."""

    dtype: str
    is_grouped: bool  # a scale for each group of a row, else for each row
    has_zero: bool


FORMS = {
    "int8": Form("int8", False, False),
    "uint8": Form("uint8", True, True),
    "int4": Form("int4", True, False),
    "int4_zero": Form("int4", True, True),
    "e4m3": Form("float8_e4m3fn", False, False),
    "e5m2": Form("float8_e5m2", False, False),
}
WEIGHTS = ("plain", *FORMS)

_told: set = set()


def tell_once(what, why):
    """Says, once for each kind of module and reason, that PyTorch does the work."""
    if ops.is_tracing():  # a warning would cut the graph in two
        return
    key = (what, str(why).split(";")[0][:60])
    if key not in _told:
        _told.add(key)
        warnings.warn(f"tessera: {what} runs in PyTorch: {why}", RuntimeWarning, stacklevel=4)


def served(what, run, fall_back, *tensors):
    """The result of `run`, or of `fall_back` if Tessera cannot compute it.

    While PyTorch traces, nothing is run, so that only gradients lead to `fall_back`.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        tell_once(what, "Tessera records no gradients; use torch.no_grad() for inference")
        return fall_back()
    if ops.is_tracing():
        return run()
    try:
        return run()
    except Error as error:
        tell_once(what, error)
        return fall_back()


def check_weights(weights):
    if weights not in WEIGHTS:
        raise Error(f"weights is {weights!r}; want one of {', '.join(WEIGHTS)}")


def fitting_group(columns, group_size):
    """The group size, or the whole row if it does not divide that."""
    return group_size if group_size and columns % group_size == 0 else columns


class Codes(torch.nn.Module):
    """A quantised weight [n, k] as buffers. `.to(dtype)` leaves it as it is; devices change."""

    codes: torch.Tensor
    scale: torch.Tensor
    zero_point: Optional[torch.Tensor]

    def __init__(self, weight, weights, group_size=128):
        super().__init__()
        check_weights(weights)
        self.weights, self.form = weights, FORMS[weights]
        self.n, self.k = weight.shape
        per = fitting_group(self.k, group_size) if self.form.is_grouped else "token"
        with torch.no_grad():
            codes, scale, *zero = tessera.quantize(
                weight.detach().contiguous(), self.form.dtype, per=per,
                asymmetric=self.form.has_zero,
            )
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("zero_point", zero[0] if zero else None)
        self.packing = "rows"
        self._is_packing_settled = False

    def extra_repr(self):
        return f"{self.weights}, n={self.n}, k={self.k}, scales={tuple(self.scale.shape)}"

    def get_extra_state(self):
        return self.packing

    def set_extra_state(self, state):
        self.packing, self._is_packing_settled = state, state != "rows"

    def _apply(self, fn, recurse=True):
        # A conversion of dtypes would turn scales and FP8 codes into other numbers.
        device = fn(torch.empty(0, device=self.codes.device)).device
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = buffer.to(device)
        return self

    def settle_packing(self, x):
        """Lays the codes out for the kernel that this device has, the first time they are used."""
        self._is_packing_settled = True
        if x.is_cpu or self.form.dtype != "int4" or self.packing != "rows":
            return
        forms = (self.codes, self.scale, self.zero_point)
        try:
            if tessera.preferred_packing(x, *forms) == "rows":
                return
            self.codes, self.scale, *zero = tessera.pack_weight(*forms)
        except Error as error:
            tell_once("the packing of int4 weights", error)
            return
        self.zero_point = zero[0] if zero else None
        self.packing = "fragments"

    def product(self, x, **fused):
        """tessera.gemm with this weight."""
        if not self._is_packing_settled and not ops.is_tracing():
            self.settle_packing(x)
        return ops.gemm(
            x, self.codes, b_scale=self.scale, b_zero_point=self.zero_point,
            b_dtype=self.form.dtype, b_packing=self.packing, is_b_static=True, **fused,
        )

    def dequantized(self, dtype):
        """The weight as PyTorch multiplies it."""
        codes, scale, zero = self.codes, self.scale, self.zero_point
        if self.packing != "rows":
            unpacked = tessera.pack_weight(codes, scale, zero, packing=self.packing, to="rows")
            codes, scale, zero = (*unpacked, None)[:3]
        if codes.dtype == torch.uint8 and self.form.dtype.startswith("float8"):
            dense = tessera.dequantize(codes, scale, format=self.form.dtype)  # no FP8 in PyTorch
            return dense.to(dtype)
        if self.form.dtype == "int4":
            pairs = torch.stack((codes & 15, codes >> 4), -1).to(torch.int32)
            values = pairs if zero is not None else (pairs ^ 8) - 8
        else:
            values = codes
        groups = scale.shape[1]
        values = values.to(torch.float32).reshape(self.n, groups, -1)
        if zero is not None:
            values = values - zero.reshape(self.n, groups, 1).to(torch.float32)
        return (values * scale.unsqueeze(-1)).reshape(self.n, self.k).to(dtype)
