# What others made judges the server: schemathesis its description, Prometheus its metrics, wrk its
# throughput.
# SPDX-License-Identifier: MIT
import re
import shutil
import subprocess

import pytest
from conftest import REPOSITORY

PARSE = """
import sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
assert len(families) > 20, families
for family in families:
    assert family.documentation and family.type != "unknown", family
    assert family.samples, family
print(len(families))
"""


def test_the_description_holds_for_every_request_made_from_it(test_python, tiny_tool_server):
    """Requests within the description are answered as it says, others refused; never a 5xx."""
    done = subprocess.run(
        [test_python.parent / "schemathesis", "--config-file",
         REPOSITORY / "tests/server/schemathesis.toml", "run",
         f"http://127.0.0.1:{tiny_tool_server.port}/openapi.json", "--seed", "1",
         "--max-examples", "8", "--workers", "1", "--phases", "examples,coverage,fuzzing",
         "--no-color", "--generation-database", "none"],
        capture_output=True, text=True, timeout=300, cwd="/tmp")
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def exercise(server):
    server.complete("The", max_tokens=3, guided_choice=["a", "b"])
    server.call("POST", "/v1/embeddings", {"input": "The"})
    return server.call("GET", "/metrics")[1]


def test_metrics_are_read_by_the_client_of_prometheus(test_python, server):
    done = subprocess.run([test_python, "-c", PARSE], input=exercise(server), text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_promtool_finds_nothing_wrong_with_the_metrics(server):
    own = REPOSITORY / "build/promtool/usr/bin/promtool"
    promtool = own if own.exists() else shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool; tools/promtool.sh fetches it")
    done = subprocess.run([promtool, "check", "metrics"], input=exercise(server), text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr


def test_wrk_gets_an_answer_to_every_request(server):
    wrk = shutil.which("wrk")
    if wrk is None:
        pytest.skip("there is no wrk; tools/setup.sh test installs it where it is available")
    done = subprocess.run([wrk, "-t1", "-c32", "-d2s", f"http://127.0.0.1:{server.port}/health"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert "Non-2xx" not in done.stdout and "Socket errors" not in done.stdout
    assert float(re.search(r"Requests/sec: *([0-9.]+)", done.stdout)[1]) > 100
