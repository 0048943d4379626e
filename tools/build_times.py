"""Prints the slowest files of a build and their budgets. Over budget is a warning, not a failure.

Usage: tools/build_times.py BUILD_FOLDER [--folders]
With --folders also the sum of each folder. Sources that are compiled as a batch are one file here.
Reads .ninja_log, so a file that came from ccache or was not rebuilt shows its most recent time.
"""
# SPDX-License-Identifier: MIT

import collections
import os
import sys
from pathlib import Path

HOST_BUDGET_S = 3.0
BATCH_BUDGET_S = 20.0
KERNEL_BUDGET_S = 60.0
CLEAN_BUILD_BUDGET_S = 15 * 60.0
CORES_OF_BUDGET = 2
NUM_SHOWN = 5


def read_compile_times(log):
    """Seconds per object file, from its last line in the log."""
    times = {}
    for line in log.read_text().splitlines():
        if line.startswith("#"):
            continue
        start_ms, end_ms, _, output, _ = line.split("\t")
        if output.endswith(".o"):
            times[output] = (int(end_ms) - int(start_ms)) / 1000
    return times


def source_of(output):
    parts = Path(output).with_suffix("").parts
    return "/".join(part for part in parts if part != "CMakeFiles" and not part.endswith(".dir"))


def print_folders(times):
    sums = collections.Counter()
    for output, seconds in times.items():
        sums[output.split("/CMakeFiles/")[0], output.endswith(".cu.o")] += seconds
    for (folder, is_cuda), seconds in sums.most_common():
        print(f"  {seconds:6.1f} s  {'CUDA' if is_cuda else 'host'}  {folder}")


def print_group(title, times, budget_s):
    over = sum(seconds > budget_s for seconds in times.values())
    print(f"{title}: {len(times)} files, {over} over the budget of {budget_s:g} s; slowest:")
    for output, seconds in sorted(times.items(), key=lambda item: -item[1])[:NUM_SHOWN]:
        mark = "  over budget" if seconds > budget_s else ""
        print(f"  {seconds:6.1f} s  {source_of(output)}{mark}")


def main():
    log = Path(sys.argv[1]) / ".ninja_log"
    if not log.exists():
        return
    times = read_compile_times(log)
    kernels = {name: s for name, s in times.items() if name.endswith(".cu.o")}
    batches = {name: s for name, s in times.items() if "/Unity/" in name}
    host = {name: s for name, s in times.items() if name not in kernels and name not in batches}
    for title, group, budget_s in (("host files", host, HOST_BUDGET_S),
                                   ("batches of host files", batches, BATCH_BUDGET_S),
                                   ("kernel files", kernels, KERNEL_BUDGET_S)):
        if group:
            print_group(title, group, budget_s)
    if "--folders" in sys.argv:
        print_folders(times)
    total_s = sum(times.values()) / CORES_OF_BUDGET
    mark = "  over budget" if total_s > CLEAN_BUILD_BUDGET_S else ""
    print(f"whole build: about {total_s:.0f} s on {CORES_OF_BUDGET} cores, budget "
          f"{CLEAN_BUILD_BUDGET_S:.0f} s{mark}; this machine has {os.cpu_count()}")


if __name__ == "__main__":
    main()
