# Adapters for the tensors of NumPy, PyTorch, CuPy, JAX and others, and the names of dtypes.
# SPDX-License-Identifier: MIT
"""Each framework has an adapter: how to borrow its tensors fastest, its stream, its allocator.

Usually C reads all tensors of a call itself, from what `objects` returns. Otherwise tensors are
borrowed one by one: a borrowed tensor is the address of a DLTensor, and what keeps it alive goes
into a list that the caller holds until the call returns.
Adapters are found by the exact type of a tensor. Anything else with `__dlpack__` goes through
`borrow_any`, which also says what is wrong with a tensor.

Dtypes have the names of the C++ library: f32 f16 bf16 e4m3 e5m2 i8 u8 i4 i32 i64.
"""

import sys

from ._dlpack import CAPSULES, KIND_CPU, KIND_CUDA, borrow_any, build, get_pointer
from ._library import Error
from ._operations import DTYPES

# What the frameworks call a dtype.
LONG_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i4": "int4",
    "i32": "int32",
    "i64": "int64",
}
_CANONICAL = {name: name for name in DTYPES}
_CANONICAL.update({long: short for short, long in LONG_NAMES.items()})
_CANONICAL.update(
    {"float": "f32", "half": "f16", "fp8": "e4m3", "float8_e4m3": "e4m3", "bool": "u8"}
)


def long_name(dtype):
    """ "float32" for torch.float32, numpy.float32, numpy.dtype("float32") and "float32"."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return name.rpartition(".")[2]


def canonical(dtype, what="dtype"):
    """The canonical name of a dtype given by name or as a framework's object."""
    name = _CANONICAL.get(long_name(dtype))
    if name is None:
        raise Error(f"{what} is {dtype!r}; want one of " + ", ".join(LONG_NAMES.values()))
    return name


def code_of(format, what):
    """The TesseraDType of a format by name; None: 0, which means the tensor's own dtype."""
    return 0 if format is None else DTYPES[canonical(format, what)]


class Framework:
    """What the package needs from a framework; subclasses override what differs."""

    name = ""
    immutable = False
    reader = CAPSULES  # how C reads `objects`
    finds_stream = False  # C finds the stream itself, or there is none
    waits_after = False  # its later work is not ordered after ours, so GPU calls must wait

    def export(self, tensor):
        """A capsule "dltensor"; fast, and may raise for an unusual tensor."""
        raise NotImplementedError

    def borrow(self, tensor, keep):
        """The address of a DLTensor, if the tensor is not unusual."""
        capsule = self.export(tensor)
        keep.append(capsule)  # never consumed, so its destructor releases the tensor
        return get_pointer(capsule, b"dltensor")

    def objects(self, tensors):
        """A tuple of what `reader` reads, for all tensors of a call.

        Fast; raises if one is unusual or of another framework.
        """
        export = self.export
        capsules = []
        for tensor in tensors:
            if tensor is None:
                capsules.append(None)
            elif by_type[type(tensor)] is self:
                capsules.append(export(tensor))
            else:
                raise Error("is of another framework")
        return tuple(capsules)

    def borrow_unusual(self, tensor, keep, written):
        """The same for a tensor that `borrow` refuses."""
        return borrow_any(tensor, keep, written, self.stream(tensor) or 0)

    def stream(self, tensor):
        """The current stream of the tensor's device as an address; None on the CPU."""
        raise NotImplementedError

    def empty(self, like, shape, dtype):
        """A new tensor on the device of `like`; `dtype` is a canonical name."""
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
        return tensor.__dlpack__(stream=-1)  # the call runs on CuPy's own stream

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
    """JAX arrays are immutable: they can be read, but not written or allocated here."""

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


by_type: dict = {}  # exact type -> Framework


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


_instances: dict = {}


def _shared(kind, *arguments):
    """One adapter for all types of a framework, so that frameworks can be compared by `is`."""
    key = (kind, *arguments)
    if key not in _instances:
        _instances[key] = kind(*arguments)
    return _instances[key]


def framework_of(tensor):
    framework = by_type.get(type(tensor))
    if framework is None:
        framework = _adopt(type(tensor))
        if framework is None:
            raise Error(
                f"is a {type(tensor).__name__}; want a tensor with __dlpack__ "
                "(PyTorch, CuPy, JAX, NumPy)"
            )
        by_type[type(tensor)] = framework
    return framework


def borrow_carefully(op, arguments, writes, tensors, keep):
    """The addresses of all tensors; an error names the tensor that cannot be borrowed."""
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
