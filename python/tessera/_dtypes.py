# Element types by name: what a caller may write, and what each framework calls them.
# SPDX-License-Identifier: MIT
"""Canonical names are those of the C++ library: f32 f16 bf16 e4m3 e5m2 i8 u8 i4 i32 i64."""

from ._library import Error

# TesseraDType of c_types.h.
CODES = {
    "f32": 1,
    "f16": 2,
    "bf16": 3,
    "e4m3": 4,
    "e5m2": 5,
    "i8": 6,
    "u8": 7,
    "i4": 8,
    "i32": 9,
    "i64": 10,
}
AUTO = 0
NAMES = {code: name for name, code in CODES.items()}

# What the frameworks say, by the canonical name.
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
_CANONICAL = {name: name for name in CODES}
_CANONICAL.update({long: short for short, long in LONG_NAMES.items()})
_CANONICAL.update(
    {"float": "f32", "half": "f16", "fp8": "e4m3", "float8_e4m3": "e4m3", "bool": "u8"}
)

# (DLPack type code, bits) of the types some frameworks' own export refuses.
DLPACK = {
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
    """The TesseraDType of what bytes hold; None: what their own dtype says."""
    return AUTO if format is None else CODES[canonical(format, what)]
