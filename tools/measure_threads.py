"""Measures the cost of waiting threads: decodes with the bundled model, alone and beside others.

Usage: tools/measure_threads.py BINARY [--base BINARY] [--rounds N] [--tokens N]
"""
# SPDX-License-Identifier: MIT
#
# Three requirements, each with one thread per CPU:
#   alone      with --base: no slower than that binary, within 3 % of noise
#   together   two processes at once decode at least 85 % of the tokens per second of one alone
#   beside     next to one busy loop per CPU, a process decodes at least 40 % of its speed alone
# `bound` is printed for comparison: two processes of one thread each, which never wait. It is
# below `alone` because two processes share the memory bandwidth, not because of waiting.
# The kinds of runs take turns, so that a change in the machine's speed affects all of them, and the
# medians over the rounds are compared. Exits with 1 if a requirement is missed.

import argparse
import json
import os
import statistics
import subprocess
import sys

BARS = {"alone": 0.97, "together": 0.85, "beside": 0.40}
MODEL = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                     "models", "tessera-13m")


def start(binary, tokens, threads=None):
    """Starts a process that decodes `tokens` tokens three times, after one warm-up pass."""
    command = [binary, "bench", "e2e", f"pp16+tg{tokens}", "--model", MODEL, "--json", "-"]
    if threads:
        command += ["--threads", str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rate_of(process):
    text, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f"measure_threads: {process.args[0]} ended with status {process.returncode}")
    return json.loads(text)["results"][0]["decode_tokens_per_second"]


def alone(binary, tokens):
    return rate_of(start(binary, tokens))


def together(binary, tokens, threads=None):
    """Tokens of both processes over the time until both have finished."""
    both = [start(binary, tokens, threads) for _ in range(2)]
    return 2 * min(rate_of(process) for process in both)


def bound(binary, tokens):
    return together(binary, tokens, threads=1)


def beside(binary, tokens):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(len(os.sched_getaffinity(0)))]
    try:
        return alone(binary, tokens)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(options):
    rates = {"base": [], "alone": [], "bound": [], "together": [], "beside": []}
    for _ in range(options.rounds):
        if options.base:
            rates["base"].append(alone(options.base, options.tokens))
        for kind in (alone, bound, together, beside):
            rates[kind.__name__].append(kind(options.binary, options.tokens))
    return {kind: values for kind, values in rates.items() if values}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--base")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    rates = measure(options)
    median = {kind: statistics.median(values) for kind, values in rates.items()}
    for kind, values in rates.items():
        every = " ".join(f"{value:.0f}" for value in values)
        print(f"{kind:9} {median[kind]:7.1f} tok/s  ({every})")
    missed = 0
    for kind, bar in BARS.items():
        reference = "base" if kind == "alone" else "alone"
        if reference not in median:
            continue
        share = median[kind] / median[reference]
        missed += share < bar
        print(f"{kind:9} {share:7.1%} of {reference}; required: at least {bar:.0%}: "
              f"{'pass' if share >= bar else 'FAIL'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
