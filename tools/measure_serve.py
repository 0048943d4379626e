#!/usr/bin/env python3
"""Measures how long `tessera serve` takes from its start to its first answered request.

Usage: tools/measure_serve.py BINARY [--model FOLDER] [--rounds N] [--json FILE]

The time begins before the process is started and ends when a client has the whole answer to a
request for one token. The client asks /health every millisecond, and sends its request as soon as
the answer is 200. The first round is not counted: it fills the page cache.
"""
# SPDX-License-Identifier: MIT

import argparse
import http.client
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def measure(binary, model):
    """Seconds to a healthy server, and to its first answer."""
    port = free_port()
    began = time.monotonic()
    command = [binary, "serve", *([model] if model else []), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while True:
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
                try:
                    if ask(port, "GET", "/health") == 200:
                        break
                except OSError:
                    pass
                time.sleep(0.001)
            healthy = time.monotonic() - began
            status = ask(port, "POST", "/v1/completions",
                         json.dumps({"prompt": "The city of", "max_tokens": 1}))
            answered = time.monotonic() - began
            if status != 200:
                sys.exit(f"the first request was answered {status}")
            return healthy, answered
        finally:
            process.send_signal(signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json")
    options = parser.parse_args()
    rounds = [measure(options.binary, options.model) for _ in range(options.rounds + 1)][1:]
    result = {"model": options.model or "the bundled one", "rounds": options.rounds,
              "cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(),
              "healthy_s": round(statistics.median(one[0] for one in rounds), 4),
              "answered_s": round(statistics.median(one[1] for one in rounds), 4),
              "slowest_answered_s": round(max(one[1] for one in rounds), 4)}
    text = json.dumps(result, indent=1) + "\n"
    if options.json:
        with open(options.json, "w") as file:
            file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
