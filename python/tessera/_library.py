# Finds libtessera, checks its ABI version and declares its functions.
# SPDX-License-Identifier: MIT
"""The shared library behind the package, loaded once at import."""

import ctypes
import os
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from pathlib import Path

ABI_VERSION = 1  # of include/tessera/c.h


class Error(RuntimeError):
    """Everything Tessera refuses or fails at, with the message of the C++ library."""

    where = ""  # in the library's source, "gemm.cpp:31", where it raised the error


class NotSupported(Error):
    """No kernel takes these arguments; `supports` turns it into False."""


class Context(ctypes.Structure):
    """TesseraContext of c_types.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("stream", c_void_p),
        ("row", c_char_p),
        ("batch_invariant", c_int32),
        ("check_only", c_int32),
    ]


class RopeScaling(ctypes.Structure):
    """TesseraRopeScaling of c.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("kind", c_int),
        ("factor", c_double),
        ("low_freq_factor", c_double),
        ("high_freq_factor", c_double),
        ("original_max_positions", c_int64),
        ("beta_fast", c_double),
        ("beta_slow", c_double),
        ("attention_factor", c_double),
    ]


def _tensors(names):
    """Fields of a struct of arguments: it has its size, all its tensors, then its scalars."""
    return [(name, c_void_p) for name in names.split()]


class AttentionArgs(ctypes.Structure):
    """TesseraAttentionArgs of c_attention.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        *_tensors("q k v out lse intervals sinks alibi_slopes q_starts kv_starts kv_lens"),
        *_tensors("k_page_table v_page_table q_scale k_scale v_scale"),
        ("left", c_int64),
        ("right", c_int64),
        ("dropout_seed", c_uint64),
        ("dropout_rate", c_float),
        ("scale", c_float),
        ("softcap", c_float),
        ("bounds", c_int32),
        ("format", c_int32),
        ("sums_in_float", c_int32),
        ("reserved", c_int32),
    ]


class DecodeAttentionArgs(ctypes.Structure):
    """TesseraDecodeAttentionArgs of c_attention.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        *_tensors("q k_pages v_pages out seq_lens page_table k_scales v_scales k_tail tails lse"),
        *_tensors("sinks alibi_slopes tree blocks num_blocks keys num_keys"),
        ("window", c_int64),
        ("longest", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("k_format", c_int32),
        ("v_format", c_int32),
        ("shares_pages", c_int32),
        ("reserved", c_int32),
    ]


class MergeAttentionArgs(ctypes.Structure):
    """TesseraMergeAttentionArgs of c_attention.h."""

    _fields_ = [("struct_size", c_uint64), *_tensors("parts part_lses out lse")]


class CascadeAttentionArgs(ctypes.Structure):
    """TesseraCascadeAttentionArgs of c_attention.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        *_tensors("q k_pages v_pages out seq_lens page_table k_scales v_scales k_tail tails lse"),
        *_tensors("sinks tree blocks num_blocks keys num_keys"),
        *_tensors("shared_k_pages shared_v_pages shared_page_table piece_lens parts part_lses"),
        ("longest", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("k_format", c_int32),
        ("v_format", c_int32),
    ]


class KvAppendArgs(ctypes.Structure):
    """TesseraKvAppendArgs of c_attention.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        *_tensors("k v slots k_pages v_pages k_scales v_scales k_tail tail_slots"),
        *_tensors("rope_q rope_positions rope_table"),
        ("rope_style", c_int32),
        ("k_format", c_int32),
        ("v_format", c_int32),
        ("reserved", c_int32),
    ]


class KvGatherArgs(ctypes.Structure):
    """TesseraKvGatherArgs of c_attention.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        *_tensors("k_pages v_pages seq_lens starts k v page_table k_scales v_scales k_tail tails"),
        ("k_format", c_int32),
        ("v_format", c_int32),
    ]


class CDeviceInfo(ctypes.Structure):
    """TesseraDeviceInfo of c.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("name", ctypes.c_char * 128),
        ("compute_capability", c_int32),
        ("num_sms", c_int32),
        ("memory_bytes", c_int64),
        ("l2_bytes", c_int64),
        ("shared_bytes_per_block", c_int64),
        ("sm_clock_khz", c_int32),
    ]


class CRowInfo(ctypes.Structure):
    """TesseraRowInfo of c.h."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("family", c_char_p),
        ("op", c_char_p),
        ("name", c_char_p),
        ("library", c_char_p),
        ("in_dtype", c_int),
        ("out_dtype", c_int),
        ("is_batch_invariant", c_int32),
    ]


# DLTensor and context pointers are passed as plain addresses: ctypes converts those fastest.
_T = c_void_p
_PROTOTYPES = {
    "abi_version": (c_int, []),
    "version": (c_char_p, []),
    "commit": (c_char_p, []),
    "cuda_version": (c_char_p, []),
    "last_error": (c_char_p, []),
    "last_error_where": (c_char_p, []),
    "rms_norm": (c_int, [_T] * 6 + [c_float, c_int, _T]),
    "layer_norm": (c_int, [_T] * 7 + [c_float, c_int, _T]),
    "rope": (c_int, [_T] * 4 + [c_int, _T]),
    "make_rope_table": (c_int, [_T, c_double, _T]),
    "activation": (c_int, [_T] * 3 + [c_int, _T]),
    "softmax": (c_int, [_T] * 3 + [c_float, _T]),
    "embedding": (c_int, [_T] * 3 + [_T]),
    "copy": (c_int, [_T] * 2 + [_T]),
    "quantize": (c_int, [_T] * 4 + [c_int, c_int, _T]),
    "dequantize": (c_int, [_T] * 4 + [c_int, _T]),
    "reduce": (c_int, [_T] * 2 + [c_int, _T]),
    "argmax": (c_int, [_T] * 2 + [_T]),
    "gemm": (c_int, [_T] * 7 + [c_int, c_int, c_int, _T]),
    "pack_gate_up": (c_int, [_T] * 3 + [_T]),
    "prune_2_4": (c_int, [_T] * 3 + [_T]),
    "expand_2_4": (c_int, [_T] * 3 + [_T]),
    "gemm_2_4": (c_int, [_T] * 4 + [_T]),
    "attention_prefill": (c_int, [_T, _T]),
    "attention_decode": (c_int, [_T, _T]),
    "attention_merge": (c_int, [_T, _T]),
    "attention_cascade": (c_int, [_T, _T]),
    "kv_append": (c_int, [_T, _T]),
    "kv_gather": (c_int, [_T, _T]),
    "kv_copy_pages": (c_int, [_T] * 6 + [c_int, c_int, _T]),
    "on_objects": (c_void_p, [c_char_p]),
    "num_cuda_devices": (c_int, []),
    "device_info": (c_int, [c_int, _T]),
    "synchronize": (c_int, [c_int, c_void_p]),
    "num_rows": (c_int64, []),
    "row_info": (c_int, [c_int64, _T]),
}


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


lib = _Functions()
for _name, (_result, _arguments) in _PROTOTYPES.items():
    try:
        _function = getattr(_cdll, "tessera_" + _name)
    except AttributeError as _error:
        raise ImportError(f"tessera: {path} is not this package's library: {_error}") from None
    _function.restype = _result
    _function.argtypes = _arguments
    setattr(lib, _name, _function)
    if _name == "abi_version" and _function() != ABI_VERSION:
        raise ImportError(
            f"tessera: {path} has ABI version {_function()}, this package wants {ABI_VERSION}; "
            "rebuild the library or reinstall the package from the same tree"
        )

version = lib.version().decode()
commit = lib.commit().decode()


def raise_error(status):
    """Raises this thread's last message as the exception its status stands for."""
    message = lib.last_error().decode(errors="replace")
    error = (NotSupported if status == 4 else Error)(message)
    error.where = lib.last_error_where().decode(errors="replace")
    raise error
