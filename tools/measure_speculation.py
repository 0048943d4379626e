"""Measures prompt lookup on the CPU with the bundled model: how much faster, and how much slower.

Usage: tools/measure_speculation.py BINARY [--rounds N] [--tokens N] [--json FILE]
"""
# SPDX-License-Identifier: MIT
#
# Two requirements for `--speculate lookup` against `off`, with one thread:
#   repeats  a prompt that repeats itself, continued greedily: at least 1.8 times as fast
#   wrong    a text that is drawn almost at random, whose guesses are all wrong: at most 3 % slower
# Both kinds of runs take turns and swap their order, so that a change in the machine's speed
# affects both. A round compares one run with the other; the median of the rounds' ratios counts.
# Times are CPU seconds of the process less those of a run that draws one token, because other
# programs lengthen the wall clock and hardly the CPU time. The tokens must be the same. Exits with
# 1 if a requirement is missed.

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

MODEL = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                     "models", "tessera-13m")
MOST_SLOWDOWN = 1.03
CASES = {
    "repeats": {
        "prompt": "The cat sat on the mat. The cat sat on the mat. The cat sat on the mat.",
        "flags": ["--temperature", "0"],
        "least_ratio": 1.8,
    },
    "wrong": {
        "prompt": "Here is a list of words:",
        "flags": ["--temperature", "1.3", "--seed", "5"],
        "least_ratio": 1 / MOST_SLOWDOWN,
    },
}


def command_of(binary, case, kind, tokens):
    return [binary, "run", MODEL, case["prompt"], "--device", "cpu", "--threads", "1", "--json",
            "--ignore-eos", "--max-tokens", str(tokens), "--speculate", kind, *case["flags"]]


def run(command):
    """The report of a run, and the CPU seconds of its process."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"measure_speculation: {command[0]} ended with status {status}")
        output.seek(0)
        return json.load(output), usage.ru_utime + usage.ru_stime


def measure(binary, case, rounds, tokens):
    ratios, walls, times = [], [], {"off": [], "lookup": []}
    reports = {}
    for turn in range(rounds):
        seconds, rates = {}, {}
        for kind in ("off", "lookup") if turn % 2 == 0 else ("lookup", "off"):
            _, start_s = run(command_of(binary, case, kind, 1))
            reports[kind], whole_s = run(command_of(binary, case, kind, tokens))
            seconds[kind] = whole_s - start_s
            rates[kind] = reports[kind]["speeds"]["decode_tokens_per_second"]
            times[kind].append(seconds[kind])
        if reports["off"]["tokens"] != reports["lookup"]["tokens"]:
            sys.exit("measure_speculation: the tokens differ")
        ratios.append(seconds["off"] / seconds["lookup"])
        walls.append(rates["lookup"] / rates["off"])
    drafts = reports["lookup"]["drafts"]
    ratio = statistics.median(ratios)
    quarters = statistics.quantiles(ratios, n=4) if rounds > 1 else [ratio] * 3
    return {"prompt": case["prompt"], "flags": " ".join(case["flags"]),
            "drafted_tokens": drafts["drafted_tokens"],
            "accepted_tokens": drafts["accepted_tokens"],
            "cpu_seconds": {kind: round(statistics.median(times[kind]), 3) for kind in times},
            "speed_up": {"median": round(ratio, 3), "p25": round(quarters[0], 3),
                         "p75": round(quarters[2], 3)},
            "wall_speed_up": round(statistics.median(walls), 3),
            "required": round(case["least_ratio"], 3)}


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    result = {"cpu": cpu_name(), "date": datetime.date.today().isoformat(),
              "command": "tools/measure_speculation.py "
                         f"build/cpu/apps/tessera --rounds {options.rounds} "
                         f"--tokens {options.tokens}",
              "model": "tessera-13m", "dtype": "bf16", "threads": 1, "cases": {}}
    is_met = True
    for name, case in CASES.items():
        measured = measure(options.binary, case, options.rounds, options.tokens)
        result["cases"][name] = measured
        speed_up = measured["speed_up"]
        is_enough = speed_up["median"] >= case["least_ratio"]
        is_met = is_met and is_enough
        print(f"{name}: {measured['accepted_tokens']} of {measured['drafted_tokens']} drafted "
              f"tokens accepted; {speed_up['median']} times as fast ({speed_up['p25']} to "
              f"{speed_up['p75']}), at least {measured['required']}: "
              f"{'met' if is_enough else 'missed'}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
