#!/usr/bin/env python3
# Attention through Tessera, cuDNN and FlashAttention, in one process: errors first, then turns.
# SPDX-License-Identifier: MIT
"""compare_attention.py [--shapes NAME …] [--dtype bf16] [--row ROW] [--quick] [--json FILE]

Runs the workloads of `tessera bench attention --workloads` through the Python package and through
PyTorch's scaled_dot_product_attention with the cuDNN and the flash backend. The root mean square
error against float64 comes first, on normal data and on data with outliers, for some heads and
queries; a wrong kernel is not timed. Then all take turns of graph replays, on input sets that
rotate past twice the L2 cache; a ratio is the median over rounds of a peer's time over ours. The
figures of FlashAttention-3 are fixed ones from an H200, because the library is not at hand. Peers
know neither pages nor intervals nor, here, FP8: they are timed on the same sizes in one piece, in
bf16.
"""

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import compare  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
from compare_attention_cases import BACKENDS, Case, fa3_tflops  # noqa: E402
from compare_cases import BOUNDS  # noqa: E402

QUICK = ("prefill/d128", "prefill/llama8b", "prefill/short")
E4M3_BOUND = 8e-2  # weights have 4 bits


def served_row(run, one_set):
    """The name of the row that serves the case."""
    for row in tessera.rows():
        if row.op != "attention_prefill":
            continue
        with tessera.using(row=row.name):
            if tessera.supports(run, one_set):
                return row.name
    return "none"


def errors(case, row, kind):
    """{"tessera": error, "cudnn": error} on one kind of data, and whether ours is all finite."""
    s = case.make(kind)
    want, pick = case.reference(s, "wide")
    s["out"].view(torch.uint8).fill_(255)
    out = case.ours(row)(s)
    found = {"tessera": compare.relative_error(pick(out), want)}
    is_finite = bool(out.isfinite().all())
    cudnn, _ = case.find_peer(BACKENDS["cudnn"], [s])
    if cudnn:
        want, pick = case.reference(s, "plain")
        found["cudnn"] = compare.relative_error(pick(cudnn(s)), want)
    return found, is_finite


class Replays:
    """A graph that calls each set once, or several times, and the time of a call."""

    def __init__(self, call, sets):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for s in sets[:2]:
                call(s)
        torch.cuda.synchronize()
        self.num_calls = len(sets)
        self.graph = self.record(call, sets)
        us = max(self.run(2)[-1] * self.num_calls, 1e-3)
        if us < 500:  # long enough that gaps between graphs do not count
            self.num_calls *= math.ceil(500 / us)
            self.graph = self.record(call, sets)

    def record(self, call, sets):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(self.num_calls):
                call(sets[i % len(sets)])
        return graph

    def run(self, count):
        """Microseconds of a call in each of `count` replays, after one that absorbs the host's
        latency."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        self.graph.replay()
        marks[0].record()
        for mark in marks[1:]:
            self.graph.replay()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e3 / self.num_calls for a, b in zip(marks, marks[1:])]


def take_turns(calls, sets, rounds, turn_ms):
    """{name: (median, p10, p90, ratio to the first)} of calls that take turns."""
    timed = {name: Replays(call, sets) for name, call in calls.items()}
    counts = {}
    for name, replays in timed.items():
        us = replays.run(1)[0] * replays.num_calls
        counts[name] = max(1, min(200, int(turn_ms * 1e3 / us)))
    each = {name: [] for name in timed}
    for i in range(rounds + 1):
        order = list(timed) if i % 2 else list(reversed(timed))
        for name in order:
            times = timed[name].run(counts[name])
            if i:  # the first round warms up
                each[name].append(times)
    first = next(iter(timed))
    result = {}
    for name, per_round in each.items():
        every = sorted(t for times in per_round for t in times)
        ratios = [median(a) / median(b) for a, b in zip(per_round, each[first])]
        result[name] = (median(every), every[len(every) // 10], every[len(every) * 9 // 10],
                        median(ratios))
    return result


def compare_one(workload, shape, key, options):
    """A result for the JSON file."""
    case = Case(shape, key)
    bound = E4M3_BOUND if case.is_codes else BOUNDS[key[0]]
    found = {}
    for kind in ("normal",) if options.quick else ("normal", "outliers"):
        found[kind], is_finite = errors(case, options.row, kind)
        error = found[kind]["tessera"]
        if not is_finite or (kind == "normal" and not error <= bound):
            raise RuntimeError(f"WRONG, not timed: {kind} data, error {error:.3g} or not finite")
    first = case.make()
    tensors = {name: x for name, x in first.items() if isinstance(x, torch.Tensor)}
    sets = [first] + [case.make() for _ in range(min(compare.num_sets(tensors), 8) - 1)]
    ours = case.ours(options.row)
    calls = {"tessera": ours}
    for name, backend in BACKENDS.items():
        run, ending = case.find_peer(backend, sets)
        if run:
            calls[name + ending] = run
    timed = take_turns(calls, sets, 2 if options.quick else 5, options.turn_ms)
    us, p10, p90, _ = timed.pop("tessera")
    flops, dtype = case.flops(), key[0] if key[0] == key[1] else f"{key[0]}_{key[1]}"
    result = {"workload": workload, "row": options.row or served_row(ours, first), "dtype": dtype}
    result.update(shape=shape, us=us, p10=p10, p90=p90, tbs=case.bytes() / us * 1e-6)
    result.update(tflops=flops / us * 1e-6, percent_of_floor=None, peers={}, errors=found)
    for name, (peer_us, low, high, ratio) in timed.items():
        result["peers"][name] = {"us": peer_us, "p10": low, "p90": high, "ratio": ratio}
        result["peers"][name]["tflops"] = flops / peer_us * 1e-6
    fixed = fa3_tflops(shape)
    if fixed:
        ratio = result["tflops"] / fixed
        result["peers"]["fa3_fixed"] = {"us": flops / fixed * 1e-6, "tflops": fixed, "ratio": ratio}
    return result


def cell(value, text="{:8.3f}", width=8):
    return " " * (width - 1) + "-" if value is None else text.format(value)


def print_result(r):
    peers = r["peers"]
    cudnn = next((p for name, p in peers.items() if name.startswith("cudnn")), {})
    flash = next((p for name, p in peers.items() if name.startswith("flash")), {})
    fa3 = peers.get("fa3_fixed", {})
    line = f"{r['workload']:18} {compare.shape_text(r['shape']):62} {r['dtype']:9}"
    line += f"{r['us']:10.2f}{r['tflops']:8.1f}"
    line += "".join(cell(p.get("tflops"), "{:8.1f}") for p in (cudnn, flash, fa3))
    line += "".join(cell(p.get("ratio")) for p in (cudnn, flash, fa3))
    for kind in ("normal", "outliers"):
        for who in ("tessera", "cudnn"):
            line += cell(r["errors"].get(kind, {}).get(who), "{:10.2e}", 10)
    if any("repeated" in name for name in peers):
        line += "  KV heads repeated for a peer"
    print(line, flush=True)


def rounded(value):
    """Four significant digits: the rest is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: rounded(x) for name, x in value.items()}
    return value


def output_of(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def machine():
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": tessera.cuda_version(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "commit": tessera.__commit__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "clocks": {"sm_mhz": None, "memory_mhz": None},
        "ceilings": {"read_tbs": None, "copy_tbs": None, "bf16_tflops": None},
    }


def make_parser(description, quick):
    """The options that comparisons of attention share."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--shapes", nargs="*", help=f"only these workloads, such as {quick[0]}")
    parser.add_argument("--row", help="run this row of tessera, not the one it would choose")
    parser.add_argument("--quick", action="store_true",
                        help=f"fewer rounds and cases, only {', '.join(quick)}")
    parser.add_argument("--turn-ms", type=float, default=20, help="replays of one turn")
    parser.add_argument("--budget", type=float, default=math.inf,
                        help="seconds; no case starts later")
    parser.add_argument("--binary", help="the tessera binary, for the list of workloads",
                        default=os.environ.get("TESSERA_BINARY", compare.DEFAULT_BINARY))
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser


def parse_options():
    parser = make_parser(__doc__, QUICK)
    parser.add_argument("--dtype", help="bf16, f16, f32 or e4m3; else as workloads say")
    return parser.parse_args()


def entries(options, op, quick):
    """The workloads of an operation that the options ask for, by `tessera bench --workloads`."""
    wanted = options.shapes or (quick if options.quick else None)
    command = [options.binary, "bench", "attention", "--workloads"]
    found = subprocess.run(command, check=True, capture_output=True)
    for entry in json.loads(found.stdout):
        if entry["op"] == op and (not wanted or entry["workload"] in wanted):
            yield entry


def dtype_of(workload):
    """The types that a workload is defined for."""
    return "e4m3" if "e4m3" in workload else "f16" if workload == "prefill/short" else "bf16"


def listed(options):
    """Every (workload, shape, (in, out)) to run; of 8-bit inputs those with results in bf16."""
    for entry in entries(options, "attention_prefill", QUICK):
        dtype = options.dtype or dtype_of(entry["workload"])
        for key in entry["dtypes"]:
            if key[0] == dtype and key[1] != ("f16" if dtype == "e4m3" else None):
                yield entry["workload"], entry["shape"], tuple(key)


def run_cases(options, heading, cases, compare_one, print_result, width):
    """Compares and prints every case that the budget allows, even if some fail."""
    start, results, num_failed = time.monotonic(), [], 0
    about = machine()
    print(f"{about['gpu']}, PyTorch {about['torch']}, cuDNN {about['cudnn']}; {heading}")
    for workload, shape, key in cases:
        if time.monotonic() - start > options.budget:
            print(f"stopped after {options.budget:.0f} s, as asked; the rest was not timed")
            break
        try:
            results.append(compare_one(workload, shape, key, options))
            print_result(results[-1])
        except Exception as error:  # a failing case must not stop the others
            num_failed += 1
            text = f"{type(error).__name__}: {str(error)[:300]}"
            name = f"{workload:18} {compare.shape_text(shape):{width}}"
            print(f"{name} {key[0]:9} {text}", flush=True)
        torch.cuda.empty_cache()
    print(f"{len(results)} cases in {time.monotonic() - start:.0f} s")
    if options.json:
        about["results"] = [rounded(r) for r in results]
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    return 1 if num_failed else 0


def has_devices(program):
    if torch.cuda.is_available() and tessera.num_cuda_devices() > 0:
        return True
    print(f"{program}: PyTorch or libtessera sees no CUDA device; nothing to compare")
    return False


def main():
    options = parse_options()
    if not has_devices("compare_attention.py"):
        return 1
    torch.manual_seed(7)
    heading = (
        "TFLOPS, the time of a peer over ours, and errors against float64 on normal data and with "
        f"outliers\n{'workload':18} {'shape':62} {'dtype':9}{'us':>10}{'ours':>8}{'cudnn':>8}"
        f"{'flash':>8}{'fa3':>8}{'/cudnn':>8}{'/flash':>8}{'/fa3':>8}{'ours':>10}{'cudnn':>10}"
        f"{'ours':>10}{'cudnn':>10}")
    return run_cases(options, heading, listed(options), compare_one, print_result, 62)


if __name__ == "__main__":
    sys.exit(main())
