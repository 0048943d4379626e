#!/usr/bin/env python3
# Runs the PyTorch test cases on a GPU without pytest, for machines that do not have it.
# SPDX-License-Identifier: MIT
import sys
import traceback
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]

import hf_cuda_cases  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
import torch_cases  # noqa: E402
import torch_graph_cases  # noqa: E402


def main():
    if not torch.cuda.is_available() or tessera.num_cuda_devices() == 0:
        print("no CUDA device for PyTorch or for libtessera")
        return 1
    cases = dict(hf_cuda_cases.CASES)
    by_dtype = {name: partial(case, "cuda") for name, case in torch_cases.CASES.items()}
    for name, case in {**by_dtype, **torch_graph_cases.CASES}.items():
        for dtype in torch_cases.DTYPES:
            cases[f"{name} {dtype}"] = partial(case, dtype)
    passed = failed = 0
    for name, case in cases.items():
        try:
            case()
            torch.cuda.synchronize()
            passed += 1
        except Exception:  # every case is reported, whatever the others do
            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc(limit=4, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
