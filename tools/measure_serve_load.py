#!/usr/bin/env python3
# Compares streams of `tessera serve` with the engine alone.
# SPDX-License-Identifier: MIT
"""Measures what HTTP costs: streams of `tessera serve` beside the engine without a server.

Usage: tools/measure_serve_load.py BINARY [--shape NAME | --model FOLDER] [--streams N]
           [--prompt N] [--tokens N] [--rounds N] [--flags "..."] [--cpu] [--json FILE]

As many streams at once as `tessera bench e2e` has sequences, with the same tokens. The time of the
bench is that of its prefill and of its generated tokens at the rate it reports; the time of the
server ends when the client has read the last token. No prompt shares a prefix. The bench runs
before and after the server, and medians are compared. `--flags` go to both, such as
"--weights int4". With `--cpu` one stream on the CPU is compared with `tessera run` by processor
time, all threads together, which other processes disturb less. Exit status 1: a request failed, or
the server takes over 3 % longer.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

MOST_OVERHEAD = 0.03
PROMPT = "The history of mathematics"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def read_json(command, folder):
    """What a bench writes to its --json file."""
    path = Path(folder) / "result.json"
    run([*command, "--json", path])
    return json.loads(path.read_text())


def find(value, key):
    """The first value of this key, however deep."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            found = find(one, key)
            if found is not None:
                return found
    return None


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.flags = options.flags.split()
        self.subject = ["--shape", options.shape] if options.shape else []
        self.place = [] if options.shape else [options.model] if options.model else []

    def engine_seconds(self):
        """Of the same tokens without a server."""
        o = self.options
        model = self.subject or (["--model", *self.place] if self.place else [])
        result = read_json([o.binary, "bench", "e2e", *model, "--batch", str(o.streams),
                            "--prompt", str(o.prompt), "--generate", str(o.tokens),
                            *self.flags], self.folder)
        rate, prefill = find(result, "decode_tokens_per_second"), find(result, "prefill_ms")
        return prefill / 1e3 + o.streams * o.tokens / rate

    def run_cpu_seconds(self):
        """Processor time of `tessera run` for the tokens after the first."""
        o = self.options
        times = []
        for count in (1, o.tokens + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run([o.binary, "run", *(["--model", *self.place] if self.place else []), "--prompt",
                 PROMPT, "--max-tokens", str(count), "--ignore-eos", "--temperature", "0",
                 *self.flags])
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return times[1] - times[0]

    def server_cpu_seconds(self, url, pid):
        """Processor time of the server for the same tokens as a stream."""
        times = []
        for count in (1, self.options.tokens + 1):
            before = cpu_of(pid)
            body = {"prompt": PROMPT, "max_tokens": count, "ignore_eos": True, "temperature": 0,
                    "stream": True}
            request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
            with urllib.request.urlopen(request) as response:
                if not response.read().endswith(b"[DONE]\n\n"):
                    sys.exit("a stream has no end")
            times.append(cpu_of(pid) - before)
        return times[1] - times[0]

    def serve(self):
        o = self.options
        process = subprocess.Popen(
            [o.binary, "serve", *self.place, *self.subject, "--port", "0", "--log", "errors",
             "--max-batch", str(o.streams), *self.flags], stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        if not line.startswith("serving "):
            sys.exit("the server did not start: " + line)
        return process, line.split(" on ")[1].strip()

    def server_seconds(self, url):
        o = self.options
        result = read_json([o.binary, "bench", "serve", "--url", url, "--requests", str(o.streams),
                            "--concurrency", str(o.streams), "--prompt-tokens", str(o.prompt),
                            "--output-tokens", str(o.tokens)], self.folder)
        if result["completed"] != o.streams:
            sys.exit(f"requests failed: {result['failed']}")
        return result["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--shape", default="")
    parser.add_argument("--model", default="")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flags", default="")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.cpu:
        options.streams = 1
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        engine_seconds = bench.run_cpu_seconds if options.cpu else bench.engine_seconds
        engine = [engine_seconds() for _ in range(options.rounds)]
        process, url = bench.serve()

        def server_seconds():
            return bench.server_cpu_seconds(url, process.pid) if options.cpu else \
                bench.server_seconds(url)

        try:
            server_seconds()  # graphs are captured, memory is touched
            server = [server_seconds() for _ in range(options.rounds)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        engine += [engine_seconds() for _ in range(options.rounds)]
    overhead = statistics.median(server) / statistics.median(engine) - 1
    tokens = options.streams * options.tokens
    result = {"subject": options.shape or options.model or "the bundled model",
              "streams": options.streams, "prompt": PROMPT if options.cpu else options.prompt,
              "tokens": options.tokens, "flags": options.flags,
              "engine_s": [round(one, 4) for one in engine],
              "server_s": [round(one, 4) for one in server],
              "engine_tokens_per_second": round(tokens / statistics.median(engine), 1),
              "server_tokens_per_second": round(tokens / statistics.median(server), 1),
              "overhead": round(overhead, 4)}
    text = json.dumps(result, indent=1) + "\n"
    if options.json:
        Path(options.json).write_text(text)
    print(text, end="")
    sys.exit(1 if overhead > MOST_OVERHEAD else 0)


if __name__ == "__main__":
    main()
