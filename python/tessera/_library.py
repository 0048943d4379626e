# Finds libtessera, checks its ABI version, declares its functions, and says what it is.
# SPDX-License-Identifier: MIT
"""The shared library behind the package, loaded once at import."""

import ctypes
import operator
import os
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any, Callable, NamedTuple

from ._operations import DTYPES, OPERATIONS, STATUS, CDeviceInfo, CRowInfo

ABI_VERSION = 1  # of include/tessera/c.h
ENGINE_ABI_VERSION = 1  # of include/tessera/c_engine.h


class Error(RuntimeError):
    """Everything Tessera refuses or fails at, with the message of the C++ library."""

    where = ""  # where in the library's source it was raised: "gemm.cpp:31"


class NotSupported(Error):
    """No kernel takes these arguments; `supports` turns it into False."""


class OutOfMemory(Error):
    """Memory of the host or of a GPU does not suffice: retry with less."""


class RequestError(Error):
    """A request was accepted and failed while it ran."""


# DLTensor and context pointers are passed as plain addresses, which ctypes converts fastest.
_PROTOTYPES = {
    "abi_version": (c_int, []),
    "version": (c_char_p, []),
    "commit": (c_char_p, []),
    "cuda_version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "last_error_where": (c_char_p, []),
    "make_rope_table": (c_int, [c_void_p, c_double, c_void_p]),
    "on_objects": (c_void_p, [c_char_p]),
    "num_cuda_devices": (c_int, []),
    "device_info": (c_int, [c_int, c_void_p]),
    "synchronize": (c_int, [c_int, c_void_p]),
    "num_rows": (c_int64, []),
    "row_info": (c_int, [c_int64, c_void_p]),
    "preferred_packing": (c_int, [c_void_p, c_void_p, c_void_p]),
    # The engine: include/tessera/c_engine.h.
    "engine_abi_version": (c_int, []),
    "engine_options_init": (None, [c_void_p]),
    "request_init": (None, [c_void_p]),
    "engine_create": (c_int, [c_char_p, c_void_p, c_void_p]),
    "engine_destroy": (None, [c_void_p]),
    "engine_info": (c_int, [c_void_p, c_void_p]),
    "engine_stats": (c_int, [c_void_p, c_void_p]),
    "engine_submit": (c_int, [c_void_p, c_void_p, c_int64, c_void_p]),
    "generation_next": (c_int, [c_void_p, c_double, c_int32, c_void_p]),
    "generation_embedding": (c_int, [c_void_p, c_void_p, c_int64, c_void_p]),
    "generation_descriptor": (c_int, [c_void_p, c_void_p]),
    "generation_cancel": (c_int, [c_void_p]),
    "generation_destroy": (None, [c_void_p]),
    "engine_encode": (
        c_int,
        [c_void_p, c_char_p, c_int64, c_int32, c_int32, c_void_p, c_int64, c_void_p],
    ),
    "engine_decode": (c_int, [c_void_p, c_void_p, c_int64, c_int32, c_void_p, c_int64, c_void_p]),
    "engine_token": (c_int, [c_void_p, c_int32, c_void_p, c_int64, c_void_p]),
    "engine_render": (c_int, [c_void_p, c_char_p, c_char_p, c_int32, c_void_p, c_int64, c_void_p]),
    "engine_encode_chat": (
        c_int,
        [c_void_p, c_char_p, c_char_p, c_int32, c_void_p, c_int64, c_void_p],
    ),
}


def _prototype(op):
    """Of an operation: its struct or its tensors and scalars, then the context."""
    if op.struct is not None:
        return c_int, [c_void_p, c_void_p]
    scalars = [scalar.ctype for scalar in op.scalars]
    return c_int, [c_void_p] * len(op.tensors) + scalars + [c_void_p]


def _candidates():
    """The places to look, in order: (path, why)."""
    chosen = os.environ.get("TESSERA_LIBRARY")
    if chosen:
        return [(chosen, "$TESSERA_LIBRARY")]
    package = Path(__file__).resolve().parent
    found = [(str(package / "lib" / "libtessera.so"), "inside the package")]
    root = package.parents[1]
    if (root / "include" / "tessera" / "c.h").exists():
        builds = list((root / "build").glob("src/c_api/libtessera.so"))
        builds += (root / "build").glob("*/src/c_api/libtessera.so")
        builds.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        pattern = str(root / "build" / "**" / "libtessera.so")
        found += [(str(path), "a build of the checkout") for path in builds] or [
            (pattern, "a build of the checkout")
        ]
    return found + [("libtessera.so", "the system loader")]


def _load():
    tried = []
    for path, why in _candidates():
        if "/" in path and not os.path.exists(path):
            tried.append(f"{path} ({why}): no such file")
            continue
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            tried.append(f"{path} ({why}): {error}")
    raise ImportError(
        "tessera: libtessera.so was not found. Build it (make), or set TESSERA_LIBRARY to it. "
        "Tried:\n  " + "\n  ".join(tried)
    )


_cdll, path = _load()


class _Functions:
    """The C functions as attributes, without their prefix."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"the library has no function tessera_{name}")


lib = _Functions()


def _declare(name, result, arguments):
    try:
        function = getattr(_cdll, "tessera_" + name)
    except AttributeError as error:
        raise ImportError(f"tessera: {path} is not this package's library: {error}") from None
    function.restype = result
    function.argtypes = arguments
    setattr(lib, name, function)


for _name, _types in _PROTOTYPES.items():
    _declare(_name, *_types)
    _wanted = {"abi_version": ABI_VERSION, "engine_abi_version": ENGINE_ABI_VERSION}.get(_name)
    if _wanted is not None and getattr(lib, _name)() != _wanted:
        raise ImportError(
            f"tessera: {path} has {_name} {getattr(lib, _name)()}, this package wants "
            f"{_wanted}; rebuild the library or reinstall the package from the same tree"
        )
for _name, _op in OPERATIONS.items():
    _declare(_name, *_prototype(_op))

version = lib.version().decode()
commit = lib.commit().decode()


_KINDS = {STATUS["not_supported"]: NotSupported, STATUS["out_of_memory"]: OutOfMemory}


def raise_error(status):
    """Raises this thread's last message as the exception its status stands for."""
    message = lib.last_error().decode(errors="replace")
    error = _KINDS.get(status, Error)(message)
    error.where = lib.last_error_where().decode(errors="replace")
    raise error


def whole(value, what, low=0, high=2**63 - 1):
    """An integer within its bounds; ctypes would take any other modulo a power of two."""
    try:
        value = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; want a whole number") from None
    if not low <= value <= high:
        raise Error(f"{what} is {value}; want {low} to {high}")
    return value


class Row(NamedTuple):
    """One compiled kernel."""

    family: str
    op: str
    name: str
    library: str
    in_dtype: str
    out_dtype: str
    is_batch_invariant: bool


class DeviceInfo(NamedTuple):
    """A CUDA device."""

    name: str
    compute_capability: int
    num_sms: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    sm_clock_khz: int


_DTYPE_NAMES = {code: name for name, code in DTYPES.items()}


def _filled(struct, function, index):
    """A struct that a C function fills in for an index."""
    info = struct(ctypes.sizeof(struct))
    status = function(index, ctypes.addressof(info))
    if status:
        raise_error(status)
    return info


def rows():
    """Every compiled kernel, the preferred ones of an operation first; empty without CUDA."""
    count = lib.num_rows()
    if count < 0:
        raise_error(STATUS["internal_error"])
    return [_row(_filled(CRowInfo, lib.row_info, index)) for index in range(count)]


def _row(info):
    texts = (info.family, info.op, info.name, info.library)
    dtypes = (_DTYPE_NAMES[getattr(info, side)] for side in ("in", "out"))
    return Row(*(text.decode() for text in texts), *dtypes, bool(info.is_batch_invariant))


def num_cuda_devices():
    """0 if there is no GPU or no driver, or the library was built without CUDA."""
    return lib.num_cuda_devices()


def device_info(index=0):
    """What CUDA device `index` is and can do."""
    index = whole(index, "device_info: index", low=-(2**31), high=2**31 - 1)
    info = _filled(CDeviceInfo, lib.device_info, index)
    fields = [getattr(info, name) for name in DeviceInfo._fields[1:]]
    return DeviceInfo(info.name.decode(errors="replace"), *fields)


def cuda_version():
    """The CUDA runtime the library was built with, such as "13.0"; "" without CUDA."""
    return lib.cuda_version().decode()
