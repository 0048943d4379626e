# The load generator against the server.
# SPDX-License-Identifier: MIT
import json
import os
import subprocess

from conftest import serving


def bench(*flags):
    return subprocess.run([os.environ["TESSERA_BINARY"], "bench", "serve", *map(str, flags)],
                          capture_output=True, text=True, timeout=300)


def test_a_load_is_answered_and_measured(tiny_model):
    with serving("--log", "errors", model=tiny_model) as one:
        done = bench("--url", one.address + "/v1", "--requests", 40, "--concurrency", 8,
                     "--prompt-tokens", "10-50", "--output-tokens", 20, "--ttft-limit", 60000,
                     "--token-limit", 60000, "--json", "-")
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert figures["completed"] == 40 and figures["failed"] == {}
        assert figures["goodput"]["requests"] == 40
        assert figures["output_tokens_per_second"] * figures["seconds"] > 0.98 * 800
        for name in ("first_token_ms", "inter_token_ms", "time_per_output_token_ms", "request_ms"):
            values = figures[name]
            assert 0 <= values["p50"] <= values["p90"] <= values["p99"] <= values["max"], name
            assert values["max"] > 0, name
        assert figures["request_ms"]["p50"] > figures["first_token_ms"]["p50"]
        before = one.metrics()["generation_tokens_total"]
        assert before >= 800


def test_failures_are_counted_and_the_status_says_so(tiny_model):
    with serving("--log", "errors", "--max-batch", "1", "--max-queue", "0",
                 model=tiny_model) as one:
        done = bench("--url", one.address, "--requests", 20, "--concurrency", 20,
                     "--output-tokens", 200)
        assert done.returncode == 1 and "HTTP 429" in done.stdout
        limited = bench("--url", one.address, "--requests", 3, "--concurrency", 1,
                        "--rate", 20, "--output-tokens", 2)
        assert limited.returncode == 0, limited.stdout
    assert bench("--url", one.address, "--requests", 1).returncode == 1
    assert "--url is" in bench("--url", "nonsense").stderr
