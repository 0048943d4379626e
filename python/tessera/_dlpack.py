# The DLPack protocol: its structs, capsules, type codes, and how C reads Python's tensor objects.
# SPDX-License-Identifier: MIT
import ctypes
from ctypes import byref, c_void_p, pythonapi, sizeof

from ._library import Error, lib

KIND_CPU = (1, 3)  # kDLCPU, kDLCUDAHost
KIND_CUDA = 2

# (DLPack type code, bits) by dtype, for tensors that a framework's own export refuses.
_TYPE_CODES = {
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
    "bool": (6, 8),
    "int8": (0, 8),
    "uint8": (1, 8),
    "int32": (0, 32),
    "int64": (0, 64),
}

# Offsets of the flags and the DLTensor in a DLManagedTensorVersioned. In the older DLManagedTensor
# the DLTensor comes first.
_VERSIONED_FLAGS = 24
_VERSIONED_TENSOR = 32
_READ_ONLY = 1

# Prototypes of our own: argtypes set on ctypes.pythonapi would change it for everybody.
get_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", pythonapi)
)
is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", pythonapi)
)


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def build(keep, data, shape, strides, dtype_name, device=(1, 0)):
    """The address of a DLTensor made by hand, for what a framework's own export refuses."""
    code = _TYPE_CODES.get(dtype_name)
    if code is None:
        raise Error(f"dtype {dtype_name} is not one Tessera takes")
    axes = ctypes.c_int64 * max(len(shape), 1)
    dtype = _DLDataType(*code, 1)
    tensor = _DLTensor(
        data, _DLDevice(*device), len(shape), dtype, axes(*shape), axes(*strides), 0
    )
    keep.append(tensor)
    return ctypes.addressof(tensor)


def borrow_any(tensor, keep, written, stream):
    """The address of a DLTensor by the public protocol. The producer makes `stream` wait for it."""
    arguments = {}
    if tensor.__dlpack_device__()[0] not in KIND_CPU:
        arguments["stream"] = stream or 1  # the protocol's number for the legacy default stream
    try:
        capsule = tensor.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # a producer older than DLPack 1.0
        capsule = tensor.__dlpack__(**arguments)
    keep.append(capsule)
    if not is_valid(capsule, b"dltensor_versioned"):
        return get_pointer(capsule, b"dltensor")
    address = get_pointer(capsule, b"dltensor_versioned")
    flags = ctypes.c_uint64.from_address(address + _VERSIONED_FLAGS).value
    if written and flags & _READ_ONLY:
        raise Error("is read-only, and this operation writes it")
    return address + _VERSIONED_TENSOR


class _Objects(ctypes.Structure):
    """TesseraObjects of c.h."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("size", c_void_p),
        ("item", c_void_p),
        ("absent", c_void_p),
        ("tensor_from_object", c_void_p),
        ("current_stream", c_void_p),
        ("capsule_pointer", c_void_p),
        ("clear_error", c_void_p),
        ("unlock", c_void_p),
        ("lock", c_void_p),
    ]


def _address(function):
    return ctypes.cast(function, c_void_p).value


def reader(tensor_from_object=None, current_stream=None):
    """How C reads objects: by these entries of an exchange table, or as capsules."""
    return byref(
        _Objects(
            sizeof(_Objects),
            _address(pythonapi.PyTuple_Size),
            _address(pythonapi.PyTuple_GetItem),
            id(None),
            tensor_from_object,
            current_stream,
            _address(pythonapi.PyCapsule_GetPointer),
            _address(pythonapi.PyErr_Clear),
            _address(pythonapi.PyEval_SaveThread),
            _address(pythonapi.PyEval_RestoreThread),
        )
    )


CAPSULES = reader()


def on_objects(name):
    """The operation as f(reader, as_object(tuple), byref(context) or None, scalars...).

    Every call into C by ctypes costs as much as a small operation, so this one does everything.
    The interpreter's lock is released for the operation itself.
    """
    address = lib.on_objects(name.encode())
    if not address:
        raise ImportError(f"libtessera.so has no {name} on Python objects")
    return ctypes.PYFUNCTYPE(ctypes.c_int)(address)
