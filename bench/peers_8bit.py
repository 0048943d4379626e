#!/usr/bin/env python3
# What PyTorch's own 8-bit products take on the shapes of a file that `tessera bench` wrote.
# SPDX-License-Identifier: MIT
"""peers_8bit.py RESULTS.json

Adds peers to results of the product of codes with scales by token and by row: torch._scaled_mm for
e4m3, scales included, and torch._int_mm for int8, which returns sums without their scales. Both
call cuBLASLt. Timed as compare.py times its peers, without the Python package. It needs a GPU and
PyTorch; run it right after the bench, on the same machine.
"""

import json
import sys
from pathlib import Path

import torch
from torch_timer import num_sets, time_us

GIVEN = {"m", "n", "k", "a_scale", "b_scale", "static_b"}  # options of shapes that have a peer


def has_peer(result):
    shape = result["shape"]
    return (result["row"].startswith("gemm_")
            and result["dtype"].startswith(("e4m3_bf16", "i8_bf16")) and not set(shape) - GIVEN
            and shape["a_scale"] == 1 and shape["b_scale"] == 1)


def codes(rows, cols, dtype):
    values = (torch.randn(rows, cols, device="cuda") * 30).clamp(-127, 127)
    return values.round().to(dtype) if dtype == torch.int8 else values.to(dtype)


def fp8_case(m, n, k):
    def make():
        return {"a": codes(m, k, torch.float8_e4m3fn), "b": codes(n, k, torch.float8_e4m3fn),
                "a_scale": torch.rand(m, 1, device="cuda"),
                "b_scale": torch.rand(1, n, device="cuda")}

    def call(s):
        return torch._scaled_mm(s["a"], s["b"].t(), scale_a=s["a_scale"], scale_b=s["b_scale"],
                                out_dtype=torch.bfloat16, use_fast_accum=True)

    return "torch_scaled_mm", make, call


def int8_case(m, n, k):
    def make():
        return {"a": codes(m, k, torch.int8), "b": codes(n, k, torch.int8)}

    return "torch_int_mm", make, lambda s: torch._int_mm(s["a"], s["b"].t())


def add_peer(result):
    """What the peer took, or why there is none."""
    m, n, k = (result["shape"][name] for name in "mnk")
    case = fp8_case if result["dtype"].startswith("e4m3") else int8_case
    name, make, call = case(m, n, k)
    first = make()
    try:
        call(first)
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch._int_mm refuses few rows
        return str(error).splitlines()[0]
    sets = [first] + [make() for _ in range(num_sets(first) - 1)]
    us, p10, p90 = time_us(call, sets)
    result["peers"][name] = {"us": round(us, 3), "p10": round(p10, 3), "p90": round(p90, 3),
                             "ratio": round(us / result["us"], 4)}
    return f"{us:9.2f} us, ratio {us / result['us']:.3f}"


def main():
    path = Path(sys.argv[1])
    data = json.loads(path.read_text())
    torch.manual_seed(7)
    for result in filter(has_peer, data["results"]):
        said = add_peer(result)
        torch.cuda.empty_cache()
        m, n, k = (result["shape"][name] for name in "mnk")
        print(f"{result['row']} m={m} n={n} k={k} {result['us']:9.2f} us, peer {said}", flush=True)
    data["torch"] = torch.__version__
    path.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
