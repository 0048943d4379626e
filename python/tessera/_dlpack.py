# Tensors of other frameworks as DLTensors, borrowed for the length of one call.
# SPDX-License-Identifier: MIT
"""Each framework has an adapter: how to borrow its tensors fastest, its stream, its allocator.

Commonly the C side reads all tensors of a call itself, from `objects`. Otherwise they are borrowed
one by one: a borrowed tensor is an address of a DLTensor, with whatever keeps it alive in a list
the caller holds until the call returns.
Adapters are looked up by the exact type of a tensor; anything else with `__dlpack__` goes through
`borrow_any`, which also finds the words for what goes wrong.
"""

import ctypes
import sys

from ._dtypes import DLPACK, LONG_NAMES, canonical
from ._library import Error
from ._objects import CAPSULES, DLDataType, DLDevice, DLTensor

KIND_CPU = (1, 3)  # kDLCPU, kDLCUDAHost
KIND_CUDA = 2


# Where DLManagedTensorVersioned keeps its flags and its DLTensor; in the older DLManagedTensor the
# DLTensor comes first.
_VERSIONED_FLAGS = 24
_VERSIONED_TENSOR = 32
_READ_ONLY = 1

# A prototype of its own: argtypes set on ctypes.pythonapi would be everybody's.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def build(keep, data, shape, strides, dtype_name, device=(1, 0)):
    """A DLTensor made by hand, for what a framework's own export refuses."""
    code = DLPACK.get(dtype_name)
    if code is None:
        raise Error(f"dtype {dtype_name} is not one Tessera takes")
    axes = ctypes.c_int64 * max(len(shape), 1)
    tensor = DLTensor(
        data, DLDevice(*device), len(shape), DLDataType(*code, 1), axes(*shape), axes(*strides), 0
    )
    keep.append(tensor)
    return ctypes.addressof(tensor)


class Framework:
    """What the package needs to know of a framework. Subclasses fill in what differs."""

    name = ""
    immutable = False
    reader = CAPSULES  # how the C side reads `objects`
    finds_stream = False  # the C side finds the stream, or there is none
    waits_after = False  # its other work cannot be ordered after ours, so GPU calls are waited for

    def export(self, tensor):
        """A capsule "dltensor"; fast, and may raise for anything unusual."""
        raise NotImplementedError

    def borrow(self, tensor, keep):
        """The address of a DLTensor, if the tensor is not unusual."""
        capsule = self.export(tensor)
        keep.append(capsule)  # never consumed, so its destructor releases the tensor
        return _get_pointer(capsule, b"dltensor")

    def objects(self, tensors):
        """A tuple of what `reader` reads, for all tensors of a call.

        Fast; raises if one is unusual or of another framework.
        """
        export = self.export
        capsules = []
        for tensor in tensors:
            if tensor is None:
                capsules.append(None)
            elif _by_type[type(tensor)] is self:
                capsules.append(export(tensor))
            else:
                raise Error("is of another framework")
        return tuple(capsules)

    def borrow_unusual(self, tensor, keep, written):
        """The same for what `borrow` refuses."""
        return borrow_any(tensor, keep, written, self.stream(tensor) or 0)

    def stream(self, tensor):
        """The current stream of the tensor's device as an address; None on the CPU."""
        raise NotImplementedError

    def empty(self, like, shape, dtype):
        """A new tensor beside `like`; `dtype` is a canonical name."""
        raise NotImplementedError

    def empty_like(self, like):
        """A contiguous tensor with the shape and dtype of `like`."""
        return self.empty(like, like.shape, canonical(like.dtype))

    def from_numpy(self, array, like):
        """A NumPy array as a tensor of this framework on the device of `like`."""
        raise Error(f"cannot make a {type(like).__name__}; leave out like= to get a NumPy array")


class NumpyFramework(Framework):
    name = "NumPy"
    finds_stream = True

    def __init__(self, numpy):
        self.numpy = numpy

    def export(self, tensor):
        return tensor.__dlpack__()

    def borrow_unusual(self, tensor, keep, written):
        if written and not tensor.flags.writeable:
            raise Error("is read-only, and this operation writes it")
        if not tensor.dtype.isnative:
            raise Error(
                "is not in this machine's byte order; call x.astype(x.dtype.newbyteorder())"
            )
        size = tensor.itemsize
        if any(stride % size for stride in tensor.strides):
            raise Error(f"has strides {tensor.strides} that are not whole elements of {size} bytes")
        strides = [stride // size for stride in tensor.strides]
        data = tensor.__array_interface__["data"][0]
        return build(keep, data, tensor.shape, strides, tensor.dtype.name)

    def stream(self, tensor):
        return None

    def empty(self, like, shape, dtype):
        return self.numpy.empty(shape, _numpy_name(dtype))

    def empty_like(self, like):
        return self.numpy.empty(like.shape, like.dtype)

    def from_numpy(self, array, like):
        return array


class CupyFramework(Framework):
    name = "CuPy"

    def __init__(self, cupy):
        self.cupy = cupy

    def export(self, tensor):
        return tensor.__dlpack__(stream=-1)  # the call runs on CuPy's stream: nothing to wait for

    def borrow_unusual(self, tensor, keep, written):
        strides = [stride // tensor.itemsize for stride in tensor.strides]
        device = (KIND_CUDA, tensor.device.id)
        return build(keep, tensor.data.ptr, tensor.shape, strides, tensor.dtype.name, device)

    def stream(self, tensor):
        return self.cupy.cuda.get_current_stream().ptr

    def empty(self, like, shape, dtype):
        with like.device:
            return self.cupy.empty(shape, _numpy_name(dtype))

    def empty_like(self, like):
        with like.device:
            return self.cupy.empty(like.shape, like.dtype)

    def from_numpy(self, array, like):
        with like.device:
            return self.cupy.asarray(array)


def _numpy_name(dtype):
    if dtype == "bf16":
        raise Error("NumPy and CuPy have no bfloat16 to allocate")
    return "uint8" if dtype in ("e4m3", "e5m2", "i4") else LONG_NAMES[dtype]


class JaxFramework(Framework):
    """JAX arrays are immutable, so they can be read and never written or allocated here."""

    name = "JAX"
    immutable = True
    waits_after = True

    def borrow(self, tensor, keep):
        tensor.block_until_ready()
        return borrow_any(tensor, keep, False, 0)

    def stream(self, tensor):
        return None if tensor.__dlpack_device__()[0] in KIND_CPU else 0

    def empty(self, like, shape, dtype):
        raise Error("JAX arrays are immutable")


class OtherFramework(Framework):
    """Anything else with __dlpack__; its GPU work runs on the legacy default stream."""

    name = "__dlpack__"
    waits_after = True

    def borrow(self, tensor, keep):
        raise Error("goes through borrow_any, which needs to know whether it is written")

    def stream(self, tensor):
        return None if tensor.__dlpack_device__()[0] in KIND_CPU else 0

    def empty(self, like, shape, dtype):
        raise Error(f"cannot allocate a {type(like).__name__}")


def borrow_any(tensor, keep, written, stream):
    """Through the public protocol. The producer makes `stream` wait for its own work."""
    arguments = {}
    if tensor.__dlpack_device__()[0] not in KIND_CPU:
        arguments["stream"] = stream or 1  # the protocol's number for the legacy default stream
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # a producer older than DLPack 1.0
        capsule = tensor.__dlpack__(**arguments)
    keep.append(capsule)
    if not _is_valid(capsule, b"dltensor_versioned"):
        return _get_pointer(capsule, b"dltensor")
    address = _get_pointer(capsule, b"dltensor_versioned")
    flags = ctypes.c_uint64.from_address(address + _VERSIONED_FLAGS).value
    if written and flags & _READ_ONLY:
        raise Error("is read-only, and this operation writes it")
    return address + _VERSIONED_TENSOR


_by_type = {}  # exact type -> Framework


def _adopt(kind):
    """The framework of a type seen for the first time, or None."""
    bases = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in kind.__mro__}
    if "numpy.ndarray" in bases:
        return _shared(NumpyFramework, sys.modules["numpy"])
    if "torch.Tensor" in bases:
        from ._torch_exchange import TorchFramework

        return _shared(TorchFramework)
    if "cupy.ndarray" in bases:
        return _shared(CupyFramework, sys.modules["cupy"])
    if any(base.split(".")[0] in ("jax", "jaxlib") for base in bases):
        return _shared(JaxFramework)
    return _shared(OtherFramework) if hasattr(kind, "__dlpack__") else None


_instances = {}


def _shared(kind, *arguments):
    """One adapter for all types of a framework, so that `is` tells frameworks apart."""
    key = (kind, *arguments)
    if key not in _instances:
        _instances[key] = kind(*arguments)
    return _instances[key]


def framework_of(tensor):
    framework = _by_type.get(type(tensor))
    if framework is None:
        framework = _adopt(type(tensor))
        if framework is None:
            raise Error(
                f"is a {type(tensor).__name__}; want a tensor with __dlpack__ "
                "(PyTorch, CuPy, JAX, NumPy)"
            )
        _by_type[type(tensor)] = framework
    return framework


def borrow_carefully(op, arguments, writes, tensors, keep):
    """Addresses of all tensors, one by one, naming the one that cannot be borrowed."""
    addresses = []
    first = None
    for name, tensor in zip(arguments, tensors):
        if tensor is None:
            addresses.append(None)
            continue
        written = name in writes
        try:
            framework = framework_of(tensor)
            first = first or (framework, tensor)
            if written and framework.immutable:
                raise Error(f"is a {framework.name} array, which is immutable, and is written")
            addresses.append(_borrow_one(framework, first, tensor, keep, written))
        except Exception as error:
            raise Error(f"{op}: {name} {error}") from error
    return addresses


def _borrow_one(framework, first, tensor, keep, written):
    if framework is not first[0]:
        stream = first[0].stream(first[1])
        if stream is not None:
            return borrow_any(tensor, keep, written, stream)
    if isinstance(framework, OtherFramework):
        return borrow_any(tensor, keep, written, 0)
    try:
        return framework.borrow(tensor, keep)
    except Error:
        raise
    except Exception:
        return framework.borrow_unusual(tensor, keep, written)
