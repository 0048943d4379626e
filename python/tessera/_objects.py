# The C structs that let one call into the library read Python objects and run an operation on them.
# SPDX-License-Identifier: MIT
"""A crossing into C by ctypes costs as much as a small operation, so a call makes only one."""

import ctypes
from ctypes import byref, c_void_p, pythonapi, sizeof

from ._library import lib


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


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
    """How objects are read: by these entries of an exchange table, or as capsules."""
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

# Arguments as ctypes passes them fastest, which is to a function without argtypes.
as_object = ctypes.py_object.from_param
as_float = ctypes.c_float


def on_objects(name):
    """The operation as f(reader, as_object(tuple), byref(context) or None, scalars...).

    It holds the interpreter's lock but for the operation itself.
    """
    address = lib.on_objects(name.encode())
    if not address:
        raise ImportError(f"libtessera.so has no {name} on Python objects")
    return ctypes.PYFUNCTYPE(ctypes.c_int)(address)
