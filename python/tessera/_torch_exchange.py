# PyTorch tensors as DLTensors, by PyTorch's C exchange table if it has one, else by capsules.
# SPDX-License-Identifier: MIT
"""Imported when the first torch.Tensor is seen, so that the package does not import PyTorch."""

import ctypes

import torch
from torch import Tensor
from torch.nn import Parameter

from . import _dlpack
from ._dlpack import CAPSULES, get_pointer, is_valid, reader
from ._frameworks import LONG_NAMES, Framework
from ._library import Error

# Subclasses may have no memory of their own, so they go through the public protocol.
_EXACT = frozenset([Tensor, Parameter])
_is_grad_enabled = torch.is_grad_enabled
_to_capsule = getattr(torch._C, "_to_dlpack", None) or torch.utils.dlpack.to_dlpack
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class _ExchangeApi(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1.x; only the last two entries are used."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),  # the table of an older version, or null
        ("allocate", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),  # int (PyObject*, DLTensor*), no sync, no owner
        ("current_stream", ctypes.c_void_p),  # int (device type, device id, void** stream)
    ]


def _find_table():
    """The reader of tensors by the exchange table; None before PyTorch 2.10 or so."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None or not is_valid(capsule, b"dlpack_exchange_api"):
        return None
    address = get_pointer(capsule, b"dlpack_exchange_api")
    while address:
        api = _ExchangeApi.from_address(address)
        if api.major == 1:
            if not (api.tensor_from_object and api.current_stream):
                return None
            return reader(api.tensor_from_object, api.current_stream)
        address = api.previous
    return None


_table = _find_table()


def _refuse_grad():
    raise Error(
        "requires grad, and Tessera records no gradient: call it under torch.no_grad() or "
        "torch.inference_mode(), or pass x.detach()"
    )


def _refuse_lazy():  # its memory does not hold the conjugated or negated values
    raise Error("is lazily conjugated or negated; call resolve_conj() or resolve_neg()")


class TorchFramework(Framework):
    name = "PyTorch"

    reader = _table or CAPSULES
    finds_stream = _table is not None
    export = staticmethod(_to_capsule)

    def objects(self, tensors):
        for tensor in tensors:
            if type(tensor) in _EXACT:
                if tensor.requires_grad and _is_grad_enabled():
                    _refuse_grad()
                if tensor.is_neg():
                    _refuse_lazy()
            elif tensor is not None:
                raise Error("is a subclass of torch.Tensor, or no tensor of PyTorch")
        if _table is not None:
            return tensors
        return tuple([None if tensor is None else _to_capsule(tensor) for tensor in tensors])

    def borrow(self, tensor, keep):
        if tensor.requires_grad and _is_grad_enabled():
            _refuse_grad()
        if tensor.is_neg():
            _refuse_lazy()
        if type(tensor) in _EXACT:
            return super().borrow(tensor, keep)
        return _dlpack.borrow_any(tensor.detach(), keep, False, self.stream(tensor) or 0)

    def borrow_unusual(self, tensor, keep, written):
        if tensor.layout != torch.strided:
            raise Error(f"has layout {tensor.layout}; want a strided tensor")
        if tensor.is_conj() or tensor.is_neg():
            _refuse_lazy()
        device = (1, 0)
        if tensor.is_cuda:
            device = (_dlpack.KIND_CUDA, tensor.get_device())
        elif tensor.device.type != "cpu":
            raise Error(f"is on {tensor.device}; want cpu or cuda")
        name = str(tensor.dtype).rpartition(".")[2]
        return _dlpack.build(keep, tensor.data_ptr(), tensor.shape, tensor.stride(), name, device)

    def stream(self, tensor):
        index = tensor.get_device()
        if index < 0:
            return None
        if _raw_stream is not None:
            return _raw_stream(index)
        return torch.cuda.current_stream(index).cuda_stream

    def empty(self, like, shape, dtype):
        kind = getattr(torch, LONG_NAMES[dtype], None) if dtype != "i4" else None
        return torch.empty(shape, dtype=kind or torch.uint8, device=like.device)

    def empty_like(self, like):
        return torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)

    def from_numpy(self, array, like):
        return torch.from_numpy(array).to(like.device)
