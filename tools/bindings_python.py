"""The tables of the Python package, for generate_bindings.py."""
# SPDX-License-Identifier: MIT

import textwrap

from bindings_c import ENGINE_ORIGIN, ORIGIN, WIDTH
from describe import SCALARS
from engine_types import ENGINE_ENUMS, ENGINE_STRUCTS
from operations import ATTENTION, ENUMS, OPS, STRUCTS, WEIGHT_OPS

MODULE = '''\
# The C ABI as Python sees it: enums, structs, and what every operation takes.
# {origin}
# SPDX-License-Identifier: MIT
from ctypes import (
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
)
from typing import NamedTuple, Optional

{enums}

{structs}

class Scalar(NamedTuple):
    name: str
    ctype: type
    schema: str  # its type in a PyTorch schema
    values: Optional[dict] = None  # the number of each name


class Operation:
    """What tessera_<name> takes: tensors, then scalars; as fields of `struct` if it has one."""

    def __init__(self, tensors, written, scalars=(), struct="", written_with=None):
        self.tensors = tensors.split()
        self.written = frozenset(written.split())
        self.scalars = [scalar for scalar in scalars if scalar.schema]
        # A tensor: the optional one whose presence means that it is written.
        self.written_with = written_with or {{}}
        self.struct = None
        if struct:
            fields = [("struct_size", c_uint64), *((name, c_void_p) for name in self.tensors)]
            fields += [(scalar.name, scalar.ctype) for scalar in scalars]
            self.struct = type(struct, (Structure,), {{"_fields_": fields}})


OPERATIONS = {{
{operations}}}
'''
ENGINE_MODULE = '''\
# The structs of the engine's C ABI as Python sees them.
# {origin}
# SPDX-License-Identifier: MIT
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
)

LoadFunction = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
{enums}

{structs}'''
CTYPES = {"uint64_t": "c_uint64", "int64_t": "c_int64", "int32_t": "c_int32", "double": "c_double",
          "float": "c_float", "void*": "c_void_p", "const char*": "c_char_p",
          "TesseraDType": "c_int", "char[128]": "c_char * 128",
          "const int32_t*": "POINTER(c_int32)", "const float*": "POINTER(c_float)",
          "const char* const*": "POINTER(c_char_p)", "TesseraLoadFunction": "LoadFunction"}


def items(values, indent):
    """As many to a line as fit, each with a comma behind it."""
    lines = [""]
    for value in values:
        if lines[-1] and len(lines[-1]) + len(value) + 2 + indent > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + value + ","
    return "".join(" " * indent + line + "\n" for line in lines)


def enum_table(enum):
    values = {None: -1, **enum.values} if enum.none else dict(enum.values)
    values.pop("dtype_auto", None)
    pairs = [(f'"{name}"' if name else "None") + f": {value}" for name, value in values.items()]
    line = f"{enum.python} = {{{', '.join(pairs)}}}"
    if len(line) > WIDTH:
        line = f"{enum.python} = {{\n{items(pairs, 4)}}}"
    return f"# {enum.name}\n{line}"


def struct_class(struct):
    body = items((f'("{name}", {CTYPES[c_type]})' for c_type, name, _ in struct.fields), 8)
    return (f'class {struct.python}(Structure):\n    """{struct.name}"""\n\n'
            f"    _fields_ = [\n{body}    ]\n")


def scalar(field):
    _, ctype, schema = SCALARS[field.kind]
    values = {"enum": field.enum and field.enum.python, "format": "DTYPES"}.get(field.kind)
    schema = "SymInt" if field.grows else schema
    return f'Scalar("{field.name}", {ctype}, "{schema}"' + (f", {values})" if values else ")")


def strings(names, indent):
    """Names between quotes, over several lines if they take them."""
    pieces = textwrap.wrap(" ".join(names), WIDTH - indent - 4)
    quoted = [f'"{piece} "' for piece in pieces[:-1]] + [f'"{pieces[-1]}"']
    return ("\n" + " " * indent).join(quoted)


def operation(op):
    names = [field.name for field in op.tensors]
    written = [field.name for field in op.tensors if field.is_written]
    lines = [f"        {strings(names, 8)},", f'        written="{" ".join(written)}",']
    scalars = [scalar(field) for field in op.scalars]
    if scalars:
        one_line = f"        scalars=[{', '.join(scalars)}],"
        lines.append(one_line if len(one_line) <= WIDTH else
                     f"        scalars=[\n{items(scalars, 12)}        ],")
    if op.struct:
        lines.append(f'        struct="{op.struct}",')
    pairs = [f'"{f.name}": "{f.written_with}"' for f in op.tensors if f.written_with]
    if pairs:
        lines.append(f"        written_with={{{', '.join(pairs)}}},")
    return f'    "{op.name}": Operation(\n' + "\n".join(lines) + "\n    ),\n"


def python_module():
    return MODULE.format(origin=ORIGIN, enums="\n".join(enum_table(enum) for enum in ENUMS) + "\n",
                         structs="\n\n".join(struct_class(struct) for struct in STRUCTS),
                         operations="".join(operation(op) for op in OPS + ATTENTION + WEIGHT_OPS))


def engine_module():
    return ENGINE_MODULE.format(
        origin=ENGINE_ORIGIN, enums="\n".join(enum_table(enum) for enum in ENGINE_ENUMS) + "\n",
        structs="\n\n".join(struct_class(struct) for struct in ENGINE_STRUCTS))
