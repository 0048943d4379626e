#!/usr/bin/env python3
# Decode attention through Tessera, cuDNN and flash, in one process: errors first, then turns.
# SPDX-License-Identifier: MIT
"""compare_decode.py [--shapes NAME …] [--row ROW] [--quick] [--json FILE]

Runs the decode workloads of `tessera bench attention --workloads` through the Python package and
through PyTorch's scaled_dot_product_attention with the cuDNN and the flash backend: one new token
per sequence, K and V as [batch, KV heads, tokens, d] views, grouped heads not expanded. The root
mean square error against float64 comes first, for some heads of the last sequence; a wrong kernel
is not timed. Then all take turns of graph replays, on input sets that rotate past twice the L2
cache; a ratio is the median over rounds of a peer's time over ours. Peers know neither pages nor
quantised keys: they are timed on the same sizes in one piece, in the type of q. Shapes whose
sequences share pages are left to `tessera bench`.
"""

import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import compare  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
from compare_attention import (  # noqa: E402
    cell,
    entries,
    has_devices,
    make_parser,
    run_cases,
    take_turns,
)
from compare_attention_cases import BACKENDS  # noqa: E402
from compare_cases import BOUNDS  # noqa: E402
from compare_decode_cases import DecodeCase  # noqa: E402

QUICK = ("decode/reference",)


def served_row(run, one_set):
    """The name of the row that serves the case."""
    for row in tessera.rows():
        if row.op != "attention_decode":
            continue
        with tessera.using(row=row.name):
            if tessera.supports(run, one_set):
                return row.name
    return "none"


def num_sets(case, one_set):
    tensors = [x for x in one_set.values() if isinstance(x, torch.Tensor)]
    tensors += [x.data for x in (one_set["k"], one_set["v"])]
    return min(compare.num_sets(dict(enumerate(tensors))), 8)


def compare_one(workload, shape, key, options):
    """A result for the JSON file."""
    case = DecodeCase(shape, key)
    first = case.make(has_peers=True)
    want, pick = case.reference(first)
    ours = case.ours(options.row)
    first["out"].view(torch.uint8).fill_(255)
    out = ours(first)
    errors = {"tessera": compare.relative_error(pick(out), want)}
    if not out.isfinite().all() or not errors["tessera"] <= BOUNDS[key[0]]:
        raise RuntimeError(f"WRONG, not timed: error {errors['tessera']:.3g} or not finite")
    calls = {"tessera": ours}
    for name, backend in BACKENDS.items():
        run = case.find_peer(backend, first)
        if run:
            calls[name] = run
    if "cudnn" in calls and first["plain"][0] is first["k"].data:
        errors["cudnn"] = compare.relative_error(pick(calls["cudnn"](first)), want)
    sets = [first] + [case.make(has_peers=True) for _ in range(num_sets(case, first) - 1)]
    timed = take_turns(calls, sets, 2 if options.quick else 5, options.turn_ms)
    us, p10, p90, _ = timed.pop("tessera")
    bytes_moved, flops = case.bytes(first), case.flops()
    result = {"workload": workload, "row": options.row or served_row(ours, first), "dtype": key[0]}
    result.update(shape=shape, us=us, p10=p10, p90=p90, tbs=bytes_moved / us * 1e-6)
    result.update(tflops=flops / us * 1e-6, percent_of_floor=None, peers={})
    result["errors"] = {"normal": errors}
    for name, (peer_us, low, high, ratio) in timed.items():
        result["peers"][name] = {"us": peer_us, "p10": low, "p90": high, "ratio": ratio}
    return result


def print_result(r):
    peers = [r["peers"].get(name, {}) for name in BACKENDS]
    line = f"{r['workload']:18} {compare.shape_text(r['shape']):56} {r['us']:10.2f}{r['tbs']:8.3f}"
    line += "".join(cell(p.get("us"), "{:10.2f}", 10) for p in peers)
    line += "".join(cell(p.get("ratio")) for p in peers)
    errors = r["errors"]["normal"]
    line += "".join(cell(errors.get(n), "{:10.2e}", 10) for n in ("tessera", "cudnn"))
    print(f"{line}  {r['row']}", flush=True)


def parse_options():
    parser = make_parser(__doc__, QUICK)
    parser.add_argument("--dtype", default="bf16", help="of q: bf16 or f16")
    parser.add_argument("--most-gb", type=float, default=math.inf,
                        help="leave out shapes whose keys and values in 16 bits are larger")
    return parser.parse_args()


def listed(options):
    """Every (workload, shape, (in, out)) to run."""
    for entry in entries(options, "attention_decode", QUICK):
        s = entry["shape"]
        size = 4 * s["batch"] * s["kv_len"] * s.get("kv_heads", s["heads"]) * s["d"]
        for key in entry["dtypes"]:
            is_wanted = key[0] == options.dtype and size <= options.most_gb * 2**30
            if is_wanted and DecodeCase.knows(s):
                yield entry["workload"], s, tuple(key)


def main():
    options = parse_options()
    if not has_devices("compare_decode.py"):
        return 1
    torch.manual_seed(7)
    heading = (
        "microseconds, the time of a peer over ours, and errors against float64\n"
        f"{'workload':18} {'shape':56} {'us':>10}{'TB/s':>8}{'cudnn':>10}{'flash':>10}"
        f"{'/cudnn':>8}{'/flash':>8}{'ours':>10}{'cudnn':>10}  row")
    return run_cases(options, heading, listed(options), compare_one, print_result, 56)


if __name__ == "__main__":
    sys.exit(main())
