#!/usr/bin/env python3
"""Writes the C headers, the C++ behind them and the Python tables of the C ABI.

From src/c_api/operations.py and src/c_api/engine_types.py.

Usage: tools/generate_bindings.py          writes the files
       tools/generate_bindings.py --check  writes nothing; status 1 where a file differs
"""
# SPDX-License-Identifier: MIT

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src" / "c_api"))

from bindings_c import (  # noqa: E402
    engine_types_header, enum_twins, ops_header, source, types_header)
from bindings_python import engine_module, python_module  # noqa: E402
from operations import ATTENTION, OPS, WEIGHT_OPS  # noqa: E402


def generated():
    """Every file and its text."""
    ops = "Elementwise operations and GEMM"
    weights = "Quantised weights"
    attention = "Attention, KV cache, sampling"
    rest = "of the C ABI; tessera/c.h includes it and has the conventions."
    return {
        "include/tessera/c_types.h": types_header(),
        "include/tessera/c_ops.h": ops_header(OPS, f"{ops} {rest}"),
        "include/tessera/c_weights.h": ops_header(WEIGHT_OPS, f"{weights} {rest}"),
        "include/tessera/c_attention.h": ops_header(ATTENTION, f"{attention} {rest}"),
        "src/c_api/ops.cpp": source(OPS, "ops_on_objects", f"{ops} over DLPack tensors.",
                                    enum_twins(OPS)),
        "src/c_api/weights.cpp": source(WEIGHT_OPS, "weights_on_objects",
                                        f"{weights} over DLPack tensors.",
                                        enum_twins(WEIGHT_OPS, {"Packing"})),
        "src/c_api/attention.cpp": source(ATTENTION, "attention_on_objects",
                                          f"{attention} over DLPack tensors."),
        "include/tessera/c_engine_types.h": engine_types_header(),
        "python/tessera/_operations.py": python_module(),
        "python/tessera/_engine_types.py": engine_module(),
    }


def main(arguments, root=ROOT):
    stale = [path for path, text in generated().items()
             if not (root / path).exists() or (root / path).read_text() != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path}: is not what tools/generate_bindings.py writes; change "
                  "src/c_api/operations.py and run it", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (root / path).write_text(generated()[path])
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
