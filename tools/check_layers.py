"""Checks that every #include goes down the layers of docs/architecture.md, never up or sideways.

Usage: tools/check_layers.py [ROOT]
The table below is the rule. CMake enforces most of it by linking; this tool explains violations.
"""
# SPDX-License-Identifier: MIT

import re
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from cpp_text import strip_comments
from source_files import CPP_SUFFIXES, REPOSITORY, report, source_files

CORE = ("core/*", "tessera/core/*")
OP_STRUCTS = ("tessera/ops/*",)
OPS = CORE + OP_STRUCTS + ("ops/*",)
TEXT = ("text/*", "tessera/text/*")
GRAMMAR = ("grammar/*", "tessera/grammar/*")

NO_CUDA, CUDA_IN_SOURCES, CUDA_ANYWHERE = "nowhere", "in .cpp and .cu files only", "anywhere"


class Layer(NamedTuple):
    may_include: tuple  # patterns of our own headers; the layer's own folder is always allowed
    cuda: str = NO_CUDA


LAYERS = {
    "core": Layer(CORE, CUDA_IN_SOURCES),
    "text": Layer(CORE + TEXT),
    "grammar": Layer(CORE + TEXT + GRAMMAR),
    "tile": Layer(("tessera/core/dtype.h", "core/library.h"), CUDA_ANYWHERE),
    "kernels": Layer(CORE + OP_STRUCTS + ("tile/*",), CUDA_ANYWHERE),
    "cpu": Layer(CORE + OP_STRUCTS),
    "ops": Layer(CORE + OP_STRUCTS + ("kernels/row.h", "kernels/*/rows.h", "cpu/*.h")),
    "quant": Layer(OPS + ("tessera/quant/*",)),
    "cache": Layer(CORE),
    "dist": Layer(OPS, CUDA_IN_SOURCES),
    "model": Layer(OPS + ("dist/communicator.h",)),
    "quant_model": Layer(OPS + ("model/*", "quant/*", "tessera/quant/*", "dist/communicator.h")),
    "engine": Layer(CORE + TEXT + GRAMMAR + ("model/*", "cache/*", "dist/communicator.h",
                                   "tessera/engine/*")),
    "server": Layer(OPS + TEXT + GRAMMAR + ("engine/*", "tessera/engine/*")),
    "c_api": Layer(OPS + TEXT + ("engine/*", "model/config.h", "tessera/*")),
    "apps": Layer(OPS + TEXT + ("engine/*", "model/*", "server/*", "bench/*", "tessera/*",
                         "kernels/row.h")),
    "bench": Layer(OPS + ("tessera/*", "cpu/*", "tile/*", "kernels/row.h", "kernels/launch.h"),
                   CUDA_IN_SOURCES),
    "fuzz": Layer(("*",)),
    "ladder": Layer(("*",), CUDA_ANYWHERE),
    "tests": Layer(("*",), CUDA_ANYWHERE),
}

# Our headers that expose CUDA types, each with the reason why it must.
CUDA_HEADERS_OF_OURS = {
    "core/cublaslt.h": "its functions use types of cuBLASLt's header",
    "core/cuda_check.h": "it checks cudaError_t",
    "kernels/launch.h": "it takes dim3 and kernels",
    "tile/tensor_map.h": "it makes a CUtensorMap",
}
ROWS_OF_FAMILIES = ("kernels/attention/rows.h", "kernels/elementwise/rows.h",
                    "kernels/gemm/rows.h", "kernels/kv/rows.h", "kernels/sampling/rows.h")
# What single files may include beyond their layer: host code that lives beside device code.
ALSO_ALLOWED = {
    # Empty tables of every family, for a build without their libraries.
    "src/kernels/rows_none.cpp": ROWS_OF_FAMILIES,
    "src/kernels/rows_none_sm90.cpp": ROWS_OF_FAMILIES,
    "src/tile/tensor_map.h": ("core/text.h", "tessera/core/error.h", "tile/swizzle.cuh"),
}
CUDA_HEADER = re.compile(
    r"(cuda|cublas|cupti|cudnn|cufft|curand|cusparse|nccl|nvml|nvrtc|nvtx|cub/|thrust/"
    r"|cooperative_groups|driver_types|vector_types|vector_functions|device_launch|mma\.h|crt/)")
# Headers that slow down the compilation of every kernel, or cannot be used on a device.
HEAVY_FOR_DEVICE = {"iostream", "sstream", "fstream", "format", "functional", "regex", "vector",
                    "string", "map", "unordered_map", "set", "deque", "list", "memory", "thread"}

# Why OpenMP is banned: an exception that leaves an OpenMP region ends the process, its threads spin
# at barriers, and a forked child waits for them for ever.
OPENMP = re.compile(r'#\s*pragma\s+omp\b|_Pragma\s*\(\s*"\s*omp\b|\bomp\.h\b|\bomp_[a-z_]+\s*\(')

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


class Include(NamedTuple):
    line: int
    is_angled: bool
    name: str


def includes_of(code):
    return [Include(code.count("\n", 0, match.start(2)) + 1, match[1] == "<", match[2])
            for match in INCLUDE.finditer(code)]


def layer_of(path):
    """"core" for src/core/x.cpp, "include" for public headers, else the top folder, or None."""
    parts = path.parts
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return parts[0] if len(parts) > 1 else None


def family_of(name):
    """"gemm" for kernels/gemm/rows.h; None for what all families share (kernels/row.h)."""
    parts = Path(name).parts
    return parts[1] if len(parts) > 2 and parts[0] == "kernels" else None


def is_cuda(include):
    return include.name in CUDA_HEADERS_OF_OURS or bool(CUDA_HEADER.match(include.name))


def check_public(include):
    """Rules of include/tessera: plain C++20 that any compiler accepts."""
    if is_cuda(include):
        return (f"public headers are free of CUDA; found {include.name}. Forward-declare, as "
                "include/tessera/core/device.h does for Stream")
    if not include.is_angled and not include.name.startswith("tessera/"):
        return f"a public header includes {include.name}, which users do not have"
    return None


def check_cuda(path, layer, include):
    if not is_cuda(include):
        return None
    where = LAYERS[layer].cuda
    if where == NO_CUDA:
        return f"{layer} must not see CUDA; found {include.name}"
    is_own_exception = str(path.relative_to("src")) in CUDA_HEADERS_OF_OURS \
        if path.parts[0] == "src" else False
    if where == CUDA_IN_SOURCES and path.suffix == ".h" and not is_own_exception:
        return f"{layer} may include {include.name} {where}"
    return None


def check_ours(path, layer, include):
    """One #include "..." of our own header against the layer's row of the table."""
    top = Path(include.name).parts[0]
    if top not in LAYERS and top != "tessera":
        return None  # a header of a library, or of the file's own folder
    if top == layer:
        mine, theirs = family_of("/".join(path.parts[1:])), family_of(include.name)
        if layer == "kernels" and theirs is not None and theirs != mine:
            return (f"kernel family {mine or '(shared)'} includes {include.name} of another "
                    f"family; what two families need moves to src/tile or src/kernels")
        return None
    allowed = LAYERS[layer].may_include
    if any(fnmatch(include.name, pattern) for pattern in allowed):
        return None
    return f"{layer} must not include {include.name}; it may include: {', '.join(allowed)}"


def check_include(path, layer, include):
    if include.name in ALSO_ALLOWED.get(str(path), ()):
        return None
    if include.name.endswith(".cuh") and path.suffix in (".h", ".cpp"):
        return (f"{include.name} needs nvcc, but {path.suffix} files must compile with a plain "
                "host compiler")
    if path.suffix == ".cuh" and include.name in HEAVY_FOR_DEVICE:
        return f"no .cuh includes <{include.name}>; it would slow down every kernel's compilation"
    if ".." in Path(include.name).parts:
        return f"{include.name} leaves its folder with ..; write the path from src/ or include/"
    if layer == "include":
        return check_public(include)
    if layer not in LAYERS:
        return f"{layer} is not a layer; add it to the table in tools/check_layers.py" \
            if path.parts[0] == "src" else None
    return check_cuda(path, layer, include) or check_ours(path, layer, include)


def check_file(root, path):
    code = strip_comments((root / path).read_text())
    layer = layer_of(path)
    if layer is None:
        return []
    problems = []
    for include in includes_of(code):
        problem = check_include(path, layer, include)
        if problem:
            problems.append(f"{path}:{include.line}: {problem}")
    for number, line in enumerate(code.splitlines(), start=1):
        if "__CUDA_ARCH__" in line:
            problems.append(f"{path}:{number}: no kernel asks for __CUDA_ARCH__; overload on the "
                            "library tags of core/library.h")
        if OPENMP.search(line):
            problems.append(f"{path}:{number}: no OpenMP; loops over threads go through "
                            "core/parallel.h")
        if layer == "include" and re.search(r"\bcuda[A-Z]\w*", line):
            problems.append(f"{path}:{number}: a public header names a type of CUDA; Stream in "
                            "tessera/core/device.h stands for cudaStream_t")
    return problems


def check_tree(root):
    """All problems in a tree, and the number of files read."""
    paths = source_files(root, CPP_SUFFIXES)
    problems = [problem for path in paths for problem in check_file(root, path)]
    return problems, len(paths)


if __name__ == "__main__":
    tree = Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY
    sys.exit(report("check_layers", *check_tree(tree)))
