#!/usr/bin/env python3
# Tessera and PyTorch on the same named shapes, in one process, checked first and timed alike.
# SPDX-License-Identifier: MIT
"""compare.py [--family NAME] [--shapes NAME …] [--json FILE] [--merge RESULTS.json]

Times each named shape through the Python package, through the plain PyTorch expression and, for
the workloads of --compile, through torch.compile: medians over CUDA-graph replays of at least 20
calls, on input sets that rotate past twice the L2 cache. --merge adds the peers' times to a file
that `tessera bench` wrote. Needs a GPU, PyTorch, and the tessera binary for the list of shapes.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_BINARY = str(ROOT / "build" / "release" / "apps" / "tessera")
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "python"))

import compare_cases  # noqa: E402
import compare_gemm  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
from torch_timer import num_sets, time_us  # noqa: E402

CASES = {**compare_cases.CASES, **compare_gemm.CASES}
MOST_ROWS = 64  # checked where the result of a row does not depend on the others


def workloads(binary, family, wanted, dtype):
    """Every (op, workload, shape, (in, out)) to time."""
    command = [binary, "bench", family, "--workloads"]
    listed = subprocess.run(command, check=True, capture_output=True)
    for entry in json.loads(listed.stdout):
        if wanted and entry["workload"] not in wanted:
            continue
        for key in entry["dtypes"]:
            # 16-bit copies are listed as f16, which stands for every type of that width; those
            # that convert are not compared.
            if key == ["f16", "f16"] if entry["op"] == "copy" else dtype in key:
                yield entry["op"], entry["workload"], entry["shape"], tuple(key)


def relative_error(got, want):
    got, want = got.double(), want.double()
    if not torch.isfinite(got).all():
        return math.inf
    return float((got - want).norm() / want.norm().clamp_min(1e-300))


def check(op, case, one_set):
    """Empty, or how our result differs from the expression in float64."""
    inputs = [None if one_set[n] is None else one_set[n].clone() for n in case.inputs]
    if one_set.get("out") is not None:
        one_set["out"].view(torch.uint8).fill_(255)
    torch.cuda.synchronize()  # static weights must be written before the call
    got = case.ours(one_set)
    torch.cuda.synchronize()
    if op == "argmax":
        found = inputs[0].gather(-1, got[0].long().unsqueeze(-1)).squeeze(-1)
        return "" if torch.equal(found, inputs[0].amax(-1)) else "argmax: not the largest element"
    if case.per_row and got[0].shape[0] > MOST_ROWS:
        if not all(g.float().isfinite().all() for g in got):
            return "not finite, or not written"
        rows = torch.linspace(0, got[0].shape[0] - 1, MOST_ROWS, device="cuda").long()
        got = [g.view(torch.uint8)[rows].view(g.dtype) for g in got]  # FP8 cannot be indexed
        is_row = [t is not None and n in case.per_row for n, t in zip(case.inputs, inputs)]
        inputs = [t[rows] if by_row else t for t, by_row in zip(inputs, is_row)]
    if case.bound == 0:
        want = case.peer(*inputs)
        return "" if all(torch.equal(g, w) for g, w in zip(got, want)) else "differs bit for bit"
    if op == "dequantize":  # codes are compared as they are; the product is wide enough
        want = case.peer(*inputs)
    else:
        wide = [t.double() if t is not None and t.is_floating_point() else t for t in inputs]
        want = case.peer(*wide)
    for g, w in zip(case.decode(*got), case.decode(*want)):
        error = relative_error(g, w)
        if not error <= case.bound:
            return f"relative error {error:.3g}, bound {case.bound:.3g}"
    return ""


def forced(ours, row):
    def run(one_set):
        with tessera.using(row=row):
            return ours(one_set)

    return run


def compare_one(op, shape, key, row, compile_mode):
    """{"tessera": us, "torch": us, …}, or a text that says why there is none."""
    case = CASES[op](op, shape, key)
    if case is None:
        return {}
    if row is not None:
        case.ours = forced(case.ours, row)
    first = case.make()
    wrong = check(op, case, first)
    if wrong:
        return f"WRONG, not timed: {wrong}"
    sets = [first] + [case.make() for _ in range(num_sets(first) - 1)]
    arguments = [[s[n] for n in case.inputs] for s in sets]
    times = {"tessera": time_us(case.ours, sets)[0]}
    times["torch"] = time_us(lambda a: case.peer(*a), arguments)[0]
    if compile_mode:
        torch._dynamo.reset()
        compiled = torch.compile(case.peer, dynamic=False, mode=compile_mode)
        name = "torch_compile" if compile_mode == "default" else f"torch_{compile_mode}"
        times[name] = time_us(lambda a: compiled(*a), arguments)[0]
    return times


def shape_text(shape):
    return " ".join(f"{name}={value}" for name, value in shape.items())


def merge(path, rows, forced):
    """Adds the peers' times to the results of the same workload, operation, types and shape.

    If there are several rows, the first is the one that the operation chose, unless one was
    forced.
    """
    data = json.loads(path.read_text())
    by_key = {(r["workload"], r["dtype"], shape_text(r["shape"]), r["op"]): r for r in rows}
    merged, served = 0, set()
    for result in data["results"]:
        where = (result["workload"], result["dtype"], shape_text(result["shape"]))
        for (*place, op), row in by_key.items():
            if tuple(place) != where or not result["row"].startswith(op + "_"):
                continue
            if result["row"] == forced or (forced is None and (where, op) not in served):
                result["python_us"] = round(row["us"]["tessera"], 3)
            # If this row was timed here too, both sides of the ratio come from this process.
            ours = result.get("python_us") or result["us"]
            for name, us in row["us"].items():
                if name != "tessera":
                    result["peers"][name] = {"us": round(us, 3), "ratio": round(us / ours, 4)}
            served.add((where, op))
            merged += 1
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"merged the peers of {merged} results into {path}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", default="elementwise")
    parser.add_argument("--shapes", nargs="*", help="only these workloads")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--compile", nargs="*", default=["norm", "silu_mul", "rope", "ffn/fused"],
                        help="workloads that also go through torch.compile, seconds a shape")
    parser.add_argument("--compile-mode", default="default",
                        help="of torch.compile; max-autotune-no-cudagraphs takes minutes a shape")
    parser.add_argument("--row", help="run this row of tessera, not the one it would choose")
    parser.add_argument("--budget", type=float, default=math.inf,
                        help="seconds; no case starts later")
    parser.add_argument("--binary", default=os.environ.get("TESSERA_BINARY", DEFAULT_BINARY))
    parser.add_argument("--json", type=Path, help="write the times here")
    parser.add_argument("--merge", type=Path, help="add the peers to this file of tessera bench")
    return parser.parse_args()


def main():
    options = parse_options()
    if not torch.cuda.is_available():
        print("compare.py: PyTorch sees no CUDA device here; nothing to compare")
        return 1
    torch.manual_seed(7)
    start, rows, failed = time.monotonic(), [], 0
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds of one call")
    print(f"{'op':11} {'shape':56} {'dtype':10} "
          f"{'tessera':>9} {'torch':>9} {'compile':>9} {'ratio':>7}")
    listed = workloads(options.binary, options.family, options.shapes, options.dtype)
    for op, workload, shape, key in listed:
        if time.monotonic() - start > options.budget:
            print(f"stopped after {options.budget:.0f} s, as asked; the rest was not timed")
            break
        dtype = key[0] if key[0] == key[1] else f"{key[0]}_{key[1]}"
        dtype = "f16" if op == "copy" else dtype
        try:
            compile_mode = options.compile_mode if workload in options.compile else None
            us = compare_one(op, shape, key, options.row, compile_mode)
        except Exception as error:  # a failing case must not stop the others
            us = f"{type(error).__name__}: {str(error)[:300]}"
        torch.cuda.empty_cache()
        if isinstance(us, str):
            failed += 1
            print(f"{op:11} {shape_text(shape):56} {dtype:10} {us}", flush=True)
        elif us:
            best = min(t for name, t in us.items() if name != "tessera")
            compiled = [f"{t:9.2f}" for name, t in us.items() if name.startswith("torch_")]
            compiled = compiled[0] if compiled else f"{'-':>9}"
            print(f"{op:11} {shape_text(shape):56} {dtype:10} "
                  f"{us['tessera']:9.2f} {us['torch']:9.2f} {compiled} "
                  f"{best / us['tessera']:7.2f}", flush=True)
            rows.append({"op": op, "workload": workload, "dtype": dtype, "shape": shape, "us": us})
    if options.json:
        header = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                  "commit": tessera.__commit__}
        options.json.write_text(json.dumps({**header, "results": rows}, indent=1) + "\n")
    if options.merge:
        merge(options.merge, rows, options.row)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
