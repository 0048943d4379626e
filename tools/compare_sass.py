"""Shows whether two builds have the same machine code, whatever moved between files and namespaces.

Usage: tools/compare_sass.py OLD_BUILD NEW_BUILD [--only SUBSTRING]
Reads every CUDA object below each folder with cuobjdump ($CUOBJDUMP, the PATH, or beside nvcc).
Kernels are matched by their demangled names without namespaces, then by their code, which finds
renamed ones. Prints the kernels that differ, are missing or are new, and exits with 1 if there are
any. --only keeps the object files whose path contains SUBSTRING.
"""
# SPDX-License-Identifier: MIT

import argparse
import collections
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

Kernel = collections.namedtuple("Kernel", "arch name digest num_lines")

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ARCHITECTURE = re.compile(r"^arch = (\S+)|code for (sm_\w+)")
ENCODED = re.compile(r"^\s*(?:/\*[0-9a-f]{4,}\*/.*)?/\* 0x[0-9a-f]+ \*/")
MANGLED = re.compile(r"_Z\w+|\$_*\w+")
NAMESPACES = re.compile(r"\b(?:\w+|\(anonymous namespace\))::")
CAST = re.compile(r"\((?:bool|int|unsigned int|unsigned char)\)(?=-?\d)")


def find_cuobjdump():
    beside_nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").parent / "cuobjdump"
    for tool in (os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), str(beside_nvcc)):
        if tool and Path(tool).exists():
            return tool
    sys.exit("compare_sass: no cuobjdump on the PATH; name one with CUOBJDUMP=/path/to/cuobjdump")


def demangle(names):
    """Names as people read them, without namespaces: these are free to change."""
    answer = subprocess.run(["c++filt"], input="\n".join(names), text=True, check=True,
                            stdout=subprocess.PIPE).stdout.splitlines()
    return [CAST.sub("", NAMESPACES.sub("", name)) for name in answer]


def parse_dump(text):
    """(architecture, mangled name, instructions) of each function of a dump."""
    functions = []
    arch = "?"
    for line in text.splitlines():
        if found := ARCHITECTURE.search(line):
            arch = found.group(1) or found.group(2)
        elif found := FUNCTION.match(line):
            functions.append((arch, found.group(1), []))
        elif functions and ENCODED.match(line):
            functions[-1][2].append(MANGLED.sub("NAME", " ".join(line.split())))
    return functions


def read_kernels(build, only, cuobjdump):
    objects = sorted(path for path in Path(build).rglob("*.cu.o") if only in str(path))
    if not objects:
        sys.exit(f"compare_sass: no *.cu.o below {build}" + (f" with {only!r}" if only else ""))
    functions = []
    for path in objects:
        dump = subprocess.run([cuobjdump, "-sass", str(path)], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        functions += parse_dump(dump)
    names = demangle([name for _, name, _ in functions])
    return [Kernel(arch, name, hashlib.sha256("\n".join(code).encode()).hexdigest(), len(code))
            for (arch, _, code), name in zip(functions, names)]


def take_pairs(old, new, key):
    """Pairs of kernels with the same key, and what is left of both sides."""
    waiting = collections.defaultdict(list)
    for kernel in new:
        waiting[key(kernel)].append(kernel)
    pairs, left = [], []
    for kernel in old:
        others = waiting[key(kernel)]
        if others:
            pairs.append((kernel, others.pop(0)))
        else:
            left.append(kernel)
    return pairs, left, [kernel for others in waiting.values() for kernel in others]


def compare(old, new):
    """Lines that say what differs, and how many kernels are equal, by name and by code alone."""
    # Equal ones first: a name may occur once for each library, with different code.
    same, old, new = take_pairs(old, new, lambda k: (k.arch, k.name, k.digest))
    renamed, old, new = take_pairs(old, new, lambda k: (k.arch, k.digest))
    differing, old, new = take_pairs(old, new, lambda k: (k.arch, k.name))
    lines = [f"differs  {a.arch} {a.name}: {a.num_lines} lines before, {b.num_lines} now"
             for a, b in differing]
    lines += [f"missing  {k.arch} {k.name}" for k in old]
    lines += [f"new      {k.arch} {k.name}" for k in new]
    return lines, len(same), len(renamed)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    cuobjdump = find_cuobjdump()
    old = read_kernels(args.old, args.only, cuobjdump)
    new = read_kernels(args.new, args.only, cuobjdump)
    lines, num_same, num_renamed = compare(old, new)
    print("\n".join(lines), end="\n" if lines else "")
    print(f"{num_same} kernels equal, {num_renamed} equal under another name, {len(lines)} others")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
