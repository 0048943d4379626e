#!/usr/bin/env python3
"""Soaks `tessera serve`: mixed requests from many clients for a while, some of which leave.

Usage: tools/soak_serve.py BINARY [--seconds N] [--clients N] [--model FOLDER] [--json FILE]

Completions and embeddings, streamed and whole, with and without constraints, refused ones, and
clients that leave while they wait, in the middle of a stream, or with half a request sent. At the
end the server must have no request and no page in use, as many file descriptors as after a first
part (a tenth of the time, but 5 s to a minute), and not more than 8 MB of memory beyond what it had
then. Exit status 1: it has not, or it answered something else than it should.
"""
# SPDX-License-Identifier: MIT

import argparse
import collections
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

MOST_GROWTH = 8e6  # bytes
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 999}},
          "required": ["a"], "additionalProperties": False}


class Server:
    def __init__(self, binary, model):
        command = [binary, "serve", *([model] if model else []), "--port", "0",
                   "--max-batch", "16", "--max-queue", "16", "--log", "errors", "--context", "512"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline().decode()
        if not line.startswith("serving "):
            sys.exit(f"{' '.join(command)} ended")
        self.port = int(line.rpartition(":")[2])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def state(self):
        """Descriptors, bytes of memory, and the metrics without labels but the model's."""
        root = Path(f"/proc/{self.process.pid}")
        memory = next(int(line.split()[1]) * 1024 for line in
                      (root / "status").read_text().splitlines() if line.startswith("VmRSS"))
        connection = self.connect()
        connection.request("GET", "/metrics")
        values = {}
        for line in connection.getresponse().read().decode().splitlines():
            if line.startswith("tessera_") and line.count("=") == 1:
                values[line.split("{")[0].removeprefix("tessera_")] = float(line.split()[-1])
        connection.close()
        return len(list((root / "fd").iterdir())), memory, values

    def settle(self):
        """The state once every request is over, with the fewest descriptors seen: the server may
        still be closing the connection that asked before."""
        end = time.monotonic() + 60
        while True:
            time.sleep(0.2)
            found = self.state()
            if found[2]["num_requests_admitted"] == 0 and found[2]["num_connections"] <= 1:
                later = [self.state() for _ in range(5) if not time.sleep(0.1)]
                return min(found[0], *(one[0] for one in later)), *later[-1][1:]
            if time.monotonic() > end:
                sys.exit(f"requests do not end: {found[2]}")


def make_request(dice):
    """Path, body and the statuses it may be answered with."""
    body = {"prompt": " ".join(dice.choices(["the", "city", "of", "Rome", "and"], k=dice.randrange(
        1, 60))), "max_tokens": dice.randrange(1, 60), "temperature": dice.choice([0, 1]),
        "stream": dice.random() < 0.6}
    kind = dice.random()
    if kind < 0.1:
        return "/v1/embeddings", {"input": [body["prompt"], "a"]}, {200, 429}
    if kind < 0.2:
        return "/v1/completions", {**body, "guided_json": SCHEMA}, {200, 429}
    if kind < 0.25:
        pattern = f"[a-z]{{{dice.randrange(1, 50)}}}"
        return "/v1/completions", {**body, "guided_regex": pattern}, {200, 429}
    if kind < 0.3:
        return "/v1/completions", {**body, "temperature": 77}, {400, 429}
    if kind < 0.35:
        return "/v1/completions", {**body, "n": 3, "stream": False}, {200, 429}
    return "/v1/completions", body, {200, 429}


def ask(server, dice, counts):
    path, body, wanted = make_request(dice)
    connection = server.connect()
    try:
        if dice.random() < 0.03:  # leaves in the middle of its request
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", "1000")
            connection.endheaders(b"{")
            counts["half a request"] += 1
            return
        connection.request("POST", path, json.dumps(body))
        if dice.random() < 0.08:
            counts["left at once"] += 1
            return
        response = connection.getresponse()
        if response.status not in wanted:
            counts[f"wrong: {response.status} for {json.dumps(body)}"] += 1
            return
        if response.status == 429:
            counts["429"] += 1
            response.read()
            return time.sleep(0.05)
        if body.get("stream") and dice.random() < 0.2:
            response.read(dice.randrange(1, 400))
            counts["left a stream"] += 1
            return
        text = response.read()
        is_whole = response.status != 200 or not body.get("stream") or \
            text.endswith(b"data: [DONE]\n\n")
        counts[str(response.status) if is_whole else "wrong: a stream without its end"] += 1
    except (OSError, http.client.HTTPException) as error:
        counts[f"wrong: {error!r}"] += 1
    finally:
        connection.close()


def load(server, seconds, num_clients, seed):
    end = time.monotonic() + seconds
    totals = collections.Counter()
    lock = threading.Lock()

    def client(number):
        dice, counts = random.Random(seed * 1000 + number), collections.Counter()
        while time.monotonic() < end:
            ask(server, dice, counts)
        with lock:
            totals.update(counts)

    clients = [threading.Thread(target=client, args=(i,)) for i in range(num_clients)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--model")
    parser.add_argument("--json")
    options = parser.parse_args()
    server = Server(options.binary, options.model)
    try:
        load(server, min(60, max(5, options.seconds / 10)), options.clients, 1)
        first = server.settle()
        counts = load(server, options.seconds, options.clients, 2)
        last = server.settle()
    finally:
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(timeout=60)
    result = {"seconds": options.seconds, "clients": options.clients, "cores": os.cpu_count(),
              "answers": dict(sorted(counts.items())),
              "descriptors": [first[0], last[0]],
              "memory_mb": [round(first[1] / 1e6, 1), round(last[1] / 1e6, 1)],
              "kv_cache_usage": [first[2]["kv_cache_usage_perc"], last[2]["kv_cache_usage_perc"]],
              "preemptions": last[2]["num_preemptions_total"],
              "generated_tokens": last[2]["generation_tokens_total"], "exit_status": status}
    text = json.dumps(result, indent=1) + "\n"
    if options.json:
        Path(options.json).write_text(text)
    print(text, end="")
    problems = [name for name in counts if name.startswith("wrong")]
    if last[0] > first[0]:
        problems.append("file descriptors")
    if last[1] - first[1] > MOST_GROWTH:
        problems.append("memory")
    if last[2]["kv_cache_usage_perc"] != 0 or last[2]["num_requests_running"] != 0:
        problems.append("pages")
    if status != 0:
        problems.append("exit status")
    if problems:
        sys.exit("left behind or wrong: " + "; ".join(problems))


if __name__ == "__main__":
    main()
