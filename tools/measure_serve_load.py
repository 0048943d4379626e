#!/usr/bin/env python3
# Compares streams of `tessera serve` with the engine alone.
# SPDX-License-Identifier: MIT
"""Measures what HTTP costs: streams of `tessera serve` beside the engine without a server.

Usage: tools/measure_serve_load.py BINARY [--shape NAME | --model FOLDER] [--streams N]
           [--prompt N] [--tokens N] [--rounds N] [--flags "..."] [--json FILE]
       tools/measure_serve_load.py BINARY --one [--model FOLDER] [--tokens N] [--rounds N]
           [--patience SECONDS] [--flags "..."] [--json FILE]

Streams: as many at once as `tessera bench e2e` has sequences, with prompts and outputs of the same
length. Two figures are compared. *wall*: from the first request sent to the last token read,
against a pass of the bench from its first step to its last. *decode*: tokens a second while every
stream has its first token and none its last, against the bench's decode rate. The bench runs before
and after the server. Prompts of all rounds differ; if the prefix cache finds one of them, nothing
is reported. The first round is not counted: CUDA graphs are captured in it.

One: `tessera run` and one stream take turns, each writing to a reader that waits for every token:
seconds a token after the first (*wall*), and processor time of all threads of the process a token
(*processor*). The overhead is the median of the ratios of neighbours, so that slow drifts cancel.
Rounds in which other programs took over 1.5 % of the processors' time are repeated, for as long as
--patience says; if there are still some among them, "disturbed" counts them.

`--flags` go to both sides, such as "--weights int4". Exit status 1: a request failed, or the server
takes over 3 % longer.
"""

import argparse
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

MOST_OVERHEAD = 0.03
MOST_BYSTANDERS = 0.015
PROMPT_TOKENS = 5
PROMPT = "The history of mathematics"  # so many tokens of the bundled model


def run(command):
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done


def median(values):
    return statistics.median(values)


def listed(values, digits=4):
    return [round(one, digits) for one in values]


def processor_seconds(pid):
    """Of all threads of a process, by the scheduler's clock."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # a thread that has ended
            pass
    return total * 1e-9


class Bystanders:
    """The share of the processors that programs other than ours take."""

    def __init__(self, server):
        self.server = server
        self.cores = len(os.sched_getaffinity(0))

    def __enter__(self):
        self.before = self.look()
        return self

    def __exit__(self, *_):
        wall, busy, own = (new - old for new, old in zip(self.look(), self.before))
        self.share = max(0.0, busy - own) / (wall * self.cores)

    def look(self):
        times = [int(one) for one in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        idle = times[3] + times[4]
        own = processor_seconds(self.server.process.pid)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            used = resource.getrusage(who)
            own += used.ru_utime + used.ru_stime
        return time.monotonic(), (sum(times) - idle) / os.sysconf("SC_CLK_TCK"), own


class Server:
    def __init__(self, options, max_batch):
        place = [options.model] if options.model else []
        shape = ["--shape", options.shape] if options.shape else []
        self.process = subprocess.Popen(
            [options.binary, "serve", *place, *shape, "--port", "0", "--log", "errors",
             "--max-batch", str(max_batch), *options.flags.split()],
            stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("serving "):
            sys.exit("the server did not start: " + line)
        self.url = line.split(" on ")[1].strip()
        self.options = options
        self.num_rounds = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)

    def cached_tokens(self):
        with urllib.request.urlopen(self.url + "/metrics") as page:
            found = re.search(r"^tessera_prefix_cache_hits_total\S* (\S+)$",
                              page.read().decode(), re.M)
        return float(found.group(1))

    def load(self, streams, prompt, tokens, folder):
        """What `bench serve` reports of a round of streams, all at once."""
        self.num_rounds += 1
        path = Path(folder) / "load.json"
        run([self.options.binary, "bench", "serve", "--url", self.url, "--requests", streams,
             "--concurrency", streams, "--prompt-tokens", prompt, "--output-tokens", tokens,
             "--seed", self.num_rounds, "--json", path])
        return json.loads(path.read_text())


def engine_pass(options, folder, repeat):
    """The bench's report, and the result of its one shape."""
    path = Path(folder) / "engine.json"
    subject = ["--shape", options.shape] if options.shape else \
        ["--model", options.model] if options.model else []
    run([options.binary, "bench", "e2e", *subject, "--batch", options.streams, "--prompt",
         options.prompt, "--generate", options.tokens, "--warmup", 1, "--repeat", repeat,
         *options.flags.split(), "--json", path])
    report = json.loads(path.read_text())
    return report, report["results"][0]


def compare_streams(options, folder):
    repeat = max(1, options.rounds // 2)
    report, before = engine_pass(options, folder, repeat)
    with Server(options, options.streams) as server:
        # A pass of the bench has one token more than it generates: that of the prompt.
        rounds = [server.load(options.streams, options.prompt, options.tokens + 1, folder)
                  for _ in range(options.rounds + 1)][1:]
        cached = server.cached_tokens()
    _, after = engine_pass(options, folder, repeat)
    if cached > 0:
        sys.exit(f"{cached} tokens were found in the prefix cache: less was computed")
    engine = [before, after]
    engine_wall = [one["pass_ms"] / 1e3 for one in engine]
    engine_rate = [one["decode_tokens_per_second"] for one in engine]
    wall = [one["seconds"] for one in rounds]
    if any("all_at_once" not in one for one in rounds):
        sys.exit("the streams were never all in progress: give more --tokens")
    rate = [one["all_at_once"]["tokens_per_second"] for one in rounds]
    tokens = options.streams * (options.tokens + 1)
    result = {key: report[key] for key in ("cpu", "threads", "device", "commit", "date", "dtype",
                                           "weights", "kv")}
    result.update({
        "subject": report["model"], "streams": options.streams, "prompt": options.prompt,
        "tokens": options.tokens + 1, "flags": options.flags,
        "engine": {"wall_s": listed(engine_wall), "tokens_per_second":
                   round(tokens / median(engine_wall), 1), "decode_tokens_per_second": engine_rate,
                   "step_ms": [one["step_ms"]["median"] for one in engine]},
        "server": {"wall_s": listed(wall), "tokens_per_second": round(tokens / median(wall), 1),
                   "decode_tokens_per_second": rate,
                   "decode_s": [one["all_at_once"]["seconds"] for one in rounds],
                   "inter_token_ms": rounds[-1]["inter_token_ms"],
                   "first_token_ms": rounds[-1]["first_token_ms"]},
        "overhead_wall": round(median(wall) / median(engine_wall) - 1, 4),
        "overhead_decode": round(median(engine_rate) / median(rate) - 1, 4)})
    return result, max(result["overhead_wall"], result["overhead_decode"])


def run_alone(options):
    """Seconds a token of `tessera run`, as it reports, and processor time a token."""
    place = ["--model", options.model] if options.model else []
    processor = []
    for count in (1, options.tokens + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run([options.binary, "run", *place, "--prompt", PROMPT, "--max-tokens", count,
                    "--ignore-eos", "--temperature", "0", *options.flags.split()])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    rate = float(re.search(r"decode ([\d,.]+) tok/s", done.stderr).group(1).replace(",", ""))
    return 1 / rate, (processor[1] - processor[0]) / options.tokens


def stream_one(server, options, folder):
    processor, seconds = [], 0
    for count in (1, options.tokens + 1):
        before = processor_seconds(server.process.pid)
        report = server.load(1, PROMPT_TOKENS, count, folder)
        processor.append(processor_seconds(server.process.pid) - before)
        seconds = report["time_per_output_token_ms"]["mean"] / 1e3
    return seconds, (processor[1] - processor[0]) / options.tokens


def compare_one(options, folder):
    rounds = []
    with Server(options, 1) as server:
        run_alone(options), stream_one(server, options, folder)
        end = time.monotonic() + options.patience
        others = Bystanders(server)
        while len(rounds) < options.rounds or \
                (rounds[options.rounds - 1][0] > MOST_BYSTANDERS and time.monotonic() < end):
            with others:
                pair = run_alone(options), stream_one(server, options, folder)
            rounds = sorted([*rounds, (others.share, *pair)])  # the least disturbed first
    rounds = rounds[:options.rounds]
    alone, streamed = [one[1] for one in rounds], [one[2] for one in rounds]
    result = {"subject": options.model or "the bundled model", "tokens": options.tokens,
              "rounds": options.rounds, "flags": options.flags,
              "commit": run([options.binary, "--version"]).stdout.strip(),
              "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "cpu": re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()).group(1),
              "cores": len(os.sched_getaffinity(0)),
              "disturbed": sum(one[0] > MOST_BYSTANDERS for one in rounds)}
    for kind, place in (("wall", 0), ("processor", 1)):
        ratios = [many[place] / one[place] for one, many in zip(alone, streamed)]
        result[kind] = {"run_ms": listed(1e3 * one[place] for one in alone),
                        "stream_ms": listed(1e3 * one[place] for one in streamed),
                        "overhead": round(median(ratios) - 1, 4)}
    return result, result["wall"]["overhead"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--shape", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--flags", default="")
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument("--json")
    options = parser.parse_args()
    options.rounds = options.rounds or (15 if options.one else 3)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result, overhead = (compare_one if options.one else compare_streams)(options, folder)
    result["measured_in_s"] = round(time.monotonic() - began, 1)
    text = json.dumps(result, indent=1) + "\n"
    if options.json:
        Path(options.json).write_text(text)
    print(text, end="")
    sys.exit(1 if overhead > MOST_OVERHEAD else 0)


if __name__ == "__main__":
    main()
