# The structs and enums of the package are those of C, and the schemas of PyTorch stay as they are.
# SPDX-License-Identifier: MIT
import ctypes
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tessera import _dlpack, _engine_types, _operations

RECORDS = Path(__file__).resolve().parents[1] / "c_api"
ABI = "".join((RECORDS / name).read_text() for name in ("abi_test.cpp", "engine_abi_test.cpp"))
SCHEMAS = (Path(__file__).resolve().parent / "torch_schemas.txt").read_text().splitlines()


def structs():
    """Every struct of the package by its name in C."""
    found = {op.struct.__name__: op.struct for op in _operations.OPERATIONS.values() if op.struct}
    for value in [*vars(_operations).values(), *vars(_engine_types).values()]:
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and value.__doc__:
            found.setdefault(value.__doc__, value)
    found.pop(ctypes.Structure.__doc__, None)
    return {**found, "TesseraObjects": _dlpack._Objects}


def test_every_struct_lies_as_in_c():
    sizes = dict(re.findall(r"sizeof\((\w+)\) == (\d+)", ABI))
    assert set(structs()) == set(sizes)
    for name, struct in structs().items():
        assert ctypes.sizeof(struct) == int(sizes[name]), name
        offsets = re.findall(rf"offsetof\({name}, (\w+)\) == (\d+)", ABI)
        assert [field for field, _ in struct._fields_] == [field for field, _ in offsets]
        for field, offset in offsets:
            assert getattr(struct, field).offset == int(offset), f"{name}.{field}"


def test_every_enum_has_the_values_of_c():
    values = dict(re.findall(r"static_assert\((TESSERA_\w+) == (-?\d+)\)", ABI))
    tables = {
        "TESSERA_": ("STATUS", "DTYPES", "ACTIVATIONS", "REDUCTIONS"),
        "TESSERA_ROPE_": ("ROPE_STYLES",),
        "TESSERA_ROPE_SCALING_": ("ROPE_SCALINGS",),
        "TESSERA_SCALE_": ("SCALE_MODES",),
        "TESSERA_GEMM_": ("GEMM_FLAGS",),
        "TESSERA_ATTENTION_": ("ATTENTION_BOUNDS",),
        "TESSERA_PACKING_": ("PACKINGS",),
        "TESSERA_FINISH_": ("FINISH_REASONS",),
    }
    seen = {"TESSERA_ABI_VERSION", "TESSERA_ENGINE_ABI_VERSION", "TESSERA_DTYPE_AUTO"}
    modules = SimpleNamespace(**{**vars(_engine_types), **vars(_operations)})
    for prefix, names in tables.items():
        for table in names:
            for name, value in vars(modules)[table].items():
                constant = "TESSERA_NO_ACTIVATION" if name is None else prefix + name.upper()
                assert int(values[constant]) == value, constant
                seen.add(constant)
    assert seen == set(values)


def arguments(schema):
    """(name, positional arguments, keywords in any order, results), letters of '!' left out."""
    schema = re.sub(r"=(\d[\d.e-]*)", lambda match: f"={float(match[1])}", schema)
    name, rest = re.sub(r"\([a-z]!\)", "(!)", schema).split("(", 1)
    given, results = rest.rsplit(") -> ", 1)
    positional, _, keywords = given.partition("*, ")
    return name, positional.strip(", "), sorted(keywords.split(", ")), results


def test_the_schemas_of_pytorch_are_those_on_record():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("torch.ops.tessera needs PyTorch 2.4 or newer")
    import tessera.torch

    kind = torch._ops.OpOverloadPacket
    packets = [packet for packet in vars(tessera.torch).values() if isinstance(packet, kind)]
    registered = {str(packet.default._schema) for packet in packets}
    assert sorted(map(arguments, registered)) == sorted(map(arguments, SCHEMAS))
