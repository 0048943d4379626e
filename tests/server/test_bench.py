# The load generator against the server.
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_streams_at_once_have_a_rate_of_their_own(tiny_model):
    with serving("--log", "errors", model=tiny_model) as one:
        flags = ("--url", one.address, "--requests", 4, "--prompt-tokens", 8, "--json", "-",
                 "--output-tokens", 600)  # so many that all four run at once on a busy machine too
        figures = json.loads(bench(*flags, "--concurrency", 4).stdout)
        steady = figures["all_at_once"]
        assert steady["begin_s"] > 0
        end = steady["begin_s"] + steady["seconds"]
        assert end < 1.002 * figures["seconds"]  # figures have four digits
        assert 0 < steady["tokens"] <= 4 * 599
        assert steady["tokens_per_second"] * steady["seconds"] > 0.99 * steady["tokens"]
        assert "all_at_once" not in json.loads(bench(*flags, "--concurrency", 2).stdout)


def test_streams_are_compared_with_the_engine(tmp_path):
    tool = Path(__file__).parents[2] / "tools" / "measure_serve_load.py"
    report = tmp_path / "serve.json"

    def compare(*flags):
        command = [sys.executable, tool, os.environ["TESSERA_BINARY"], *flags, "--json", report]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        assert done.returncode in (0, 1) and "overhead" in done.stdout, done.stderr
        return json.loads(report.read_text())

    result = compare("--shape", "tessera-13m", "--streams", 4, "--prompt", 32, "--tokens", 40,
                     "--rounds", 1)
    assert result["device"] and result["commit"] and result["streams"] == 4
    assert len(result["engine"]["wall_s"]) == 2 and len(result["server"]["wall_s"]) == 1
    for side in ("engine", "server"):
        assert result[side]["tokens_per_second"] > 0
        assert all(rate > 0 for rate in result[side]["decode_tokens_per_second"])
    # Loose, because tests share the machine; what it must not be is a comparison of unlike things.
    assert -0.9 < result["overhead_wall"] < 20
    one = compare("--one", "--tokens", 30, "--rounds", 1, "--patience", 0)
    assert one["wall"]["run_ms"][0] > 0 and one["processor"]["stream_ms"][0] > 0


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
