"""The words in which operations.py describes the C ABI."""
# SPDX-License-Identifier: MIT

from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Enum:
    """An enum of C and, where `cpp` names one, its twin in C++ with the same values."""

    name: str  # "TesseraRopeStyle"
    prefix: str  # of its constants: "TESSERA_ROPE_"
    values: dict  # "half_split": 0; the name of the C++ value and of the string in Python
    python: str = ""  # the dictionary of the Python package: "ROPE_STYLES"
    cpp: str = ""  # "RopeStyle"
    doc: str = ""
    notes: dict = field(default_factory=dict)  # "half_split": "a comment"
    none: str = ""  # the C constant of value -1, which stands for None: "NO_ACTIVATION"


@dataclass(frozen=True)
class Field:
    """A tensor or a scalar of an operation."""

    name: str
    kind: str  # "tensor" or a key of SCALARS
    note: str = ""  # its comment in the C header
    to: str = ""  # the member of the C++ struct, "mask.left"; its own name if empty
    # Of a tensor:
    is_optional: bool = False
    is_written: bool = False
    is_read: bool = True
    written_with: str = ""  # an optional tensor whose presence means that this one is written
    format: str = ""  # the scalar that says which TesseraDType its bytes hold
    together: str = ""  # an optional struct in C++ whose tensors are given all or none: "rope"
    # Of a scalar:
    enum: Optional[Enum] = None
    may_be_none: bool = False  # of an enum: -1 means none
    members: dict = field(default_factory=dict)  # of bits: "gated": "is_gated"
    bit: str = ""  # of a bound: the bit of the scalar `bounds` that makes it hold
    keeps_default: bool = False  # of a number: 0 leaves the default of C++
    grows: bool = False  # changes from call to call, so torch.compile must not specialise on it

    @property
    def member(self):
        return self.to or self.name


# kind: (C type, what ctypes calls it, type in a PyTorch schema)
SCALARS = {
    "float": ("float", "c_float", "float"),
    "int64": ("int64_t", "c_int64", "int"),
    "uint64": ("uint64_t", "c_uint64", "int"),
    "bound": ("int64_t", "c_int64", "int"),
    "switch": ("int32_t", "c_int32", "bool"),
    "enum": ("int32_t", "c_int32", "str"),
    "bits": ("int32_t", "c_int32", "int"),
    "format": ("int32_t", "c_int32", "str"),
    "reserved": ("int32_t", "c_int32", ""),
}


@dataclass(frozen=True)
class Operation:
    """A function of C, `tessera_<name>`, over the C++ function of the same name."""

    name: str
    args: str  # the C++ struct: "RmsNormArgs"
    header: str  # where C++ declares it: "norm.h"
    fields: tuple  # tensors first, then scalars: the order of C
    doc: str = ""
    struct: str = ""  # the C struct that holds the fields: "TesseraKvGatherArgs"; else parameters
    is_step: bool = False  # prepares tensors and has no `supports`, so check_only is refused
    cpp: str = ""  # the C++ function, if it has another name
    reader: str = ""  # the function that reads the struct, if another C function needs it too

    @property
    def tensors(self):
        return [field for field in self.fields if field.kind == "tensor"]

    @property
    def scalars(self):
        return [field for field in self.fields if field.kind != "tensor"]


@dataclass(frozen=True)
class Struct:
    """A struct of C that is no operation's: fields as (C type, name, comment)."""

    name: str  # "TesseraContext"
    python: str  # "Context"
    fields: tuple
    doc: str = ""


def tensor(name, note="", **more):
    """A tensor that is read."""
    return Field(name, "tensor", note, **more)


def out(name="out", note="", **more):
    """A tensor that is written and not read."""
    return Field(name, "tensor", note, is_written=True, is_read=False, **more)


def inout(name, note="", **more):
    """A tensor that is read and written."""
    return Field(name, "tensor", note, is_written=True, **more)


def optional(name, note="", **more):
    """A tensor that may be absent, and is read."""
    return Field(name, "tensor", note, is_optional=True, **more)


def optional_out(name, note="", **more):
    return Field(name, "tensor", note, is_optional=True, is_written=True, is_read=False, **more)


def optional_inout(name, note="", **more):
    return Field(name, "tensor", note, is_optional=True, is_written=True, **more)


def number(name, note="", **more):
    """A float."""
    return Field(name, "float", note, **more)


def count(name, note="", **more):
    """A 64-bit integer."""
    return Field(name, "int64", note, **more)


def switch(name, note="", **more):
    """A bool, as an int32_t of 0 or not 0."""
    return Field(name, "switch", note, **more)


def choice(name, enum, note="", **more):
    """A value of an enum."""
    return Field(name, "enum", note or enum.name, enum=enum, **more)


def format_of(name, note):
    """The TesseraDType of tensors stored as bytes."""
    return Field(name, "format", note)


def reserved():
    return Field("reserved", "reserved", "0")
