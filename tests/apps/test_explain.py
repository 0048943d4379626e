"""`tessera bench e2e --explain` and `--profile`, end to end on the CPU."""
# SPDX-License-Identifier: MIT

import json

import pytest
from conftest import call, call_json
from test_checks import refused

QUICK = ("bench", "e2e", "--device", "cpu", "--repeat", 1, "--warmup", 0)
OPS_OF_A_LAYER = ["norm_gemm", "attention_append", "gemm", "norm_gemm", "gemm"]
SEPARATE_OPS = ["rms_norm", "gemm", "kv_append", "attention_decode", "gemm", "rms_norm", "gemm"]


def test_explain_accounts_for_every_microsecond_of_a_decode_step():
    report = call_json(*QUICK, "--batch", 2, "--prompt", 40, "--generate", 12, "--explain",
                       "--bandwidth", 0.02, "--json", "-")
    result = report["results"][0]
    rows, step = result["explain"], result["explained_step"]
    assert sum(row["all_us"] for row in rows) == pytest.approx(step["wall_us"], abs=0.1)
    assert step["time_us"] + step["gap_us"] == pytest.approx(step["wall_us"], abs=0.01)
    assert 0 < result["busy_share"] <= 1
    assert step["missing_kernels"] == 0
    assert set(step["stages_us"]) >= {"plan", "assemble", "forward", "sample", "commit"}
    assert 0 < step["host_us"] < step["wall_us"]
    assert result["host_us"] > 0
    layer = [row for row in rows if row["part"] == "repeated"]
    assert [row["op"] for row in layer][:len(OPS_OF_A_LAYER)] == OPS_OF_A_LAYER
    assert all(row["calls"] == step["repeats"] for row in layer)
    assert [row["op"] for row in rows if row["part"] == "before"] == ["embedding"]
    head = [row["op"] for row in rows if row["part"] == "after"]
    assert head[:2] == ["embedding", "norm_gemm"]
    for row in rows:
        assert row["bytes"] > 0
        assert row["floor_us"] == pytest.approx(row["bytes"] / 0.02e6, abs=0.001)
    assert step["bytes"] == sum(row["bytes"] * row["calls"] for row in rows)
    # All weights once, and the keys and values of about 46 tokens of 2 sequences.
    memory = result["memory"]
    assert step["bytes"] > memory["weight_bytes"] * 0.8
    attention = next(row for row in rows if row["op"] == "attention_append")
    cached = attention["bytes"] * attention["calls"]
    assert cached >= 2 * 42 * memory["kv_bytes_per_token"]
    assert cached <= 1.3 * 2 * 52 * memory["kv_bytes_per_token"]


def test_explain_names_the_operations_of_steps_that_are_not_fused():
    report = call_json(*QUICK, "--prompt", 16, "--generate", 4, "--fuse", "off", "--explain",
                       "--bandwidth", 0.02, "--json", "-")
    layer = [row["op"] for row in report["results"][0]["explain"] if row["part"] == "repeated"]
    assert layer[:len(SEPARATE_OPS)] == SEPARATE_OPS


def test_explain_prints_a_table_and_its_own_definitions():
    done = call(*QUICK, "--prompt", 16, "--generate", 4, "--explain", "--bandwidth", 0.02)
    assert done.returncode == 0, done.stderr
    for word in ("operation", "attention_append", " times:", "- then:", "wall", "busy", "floor",
                 "host", "time: from the end of the work before it", "gap: the device idle"):
        assert word in done.stdout, word


def test_explain_of_prompts_takes_the_last_of_their_steps():
    report = call_json(*QUICK, "pp1100", "--explain", "--bandwidth", 0.02, "--json", "-")
    result = report["results"][0]
    assert result["explained_step"]["step"] == 2
    attention = [row for row in result["explain"] if row["op"] == "attention_prefill"]
    assert attention and all(row["shape"] == "1x76 over 1x1100" for row in attention)


def test_profile_writes_a_trace_of_host_and_device(tmp_path):
    path = tmp_path / "trace.json"
    done = call(*QUICK, "--prompt", 16, "--generate", 12, "--profile", path)
    assert done.returncode == 0, done.stderr
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    names = {(e["cat"], e["name"]) for e in events}
    for stage in ("plan", "assemble", "forward", "sample", "commit"):
        assert ("stage", stage) in names
    assert ("call", "attention_append") in names
    assert min(e["ts"] for e in events) == 0
    steps = [e for e in events if e["cat"] == "step"]
    assert len(steps) >= 4
    # One clock: every call of an operation lies in one of the steps.
    for work in (e for e in events if e["cat"] == "call"):
        assert any(s["ts"] <= work["ts"] and work["ts"] + work["dur"] <= s["ts"] + s["dur"] + 0.01
                   for s in steps)


def test_floors_need_a_bandwidth_and_are_measured_for_explain_alone():
    shape = ("--prompt", 8, "--generate", 4, "--json", "-")
    plain = call_json(*QUICK, *shape)
    assert "floor_ms" not in plain["results"][0] and plain["read_tbs"] == 0
    given = call_json(*QUICK, *shape, "--bandwidth", 0.01)
    result = given["results"][0]
    kv = result["memory"]["kv_bytes_per_token"] * (8 + 5 / 2)
    weights = result["weight_gbs"] * result["step_ms"]["median"] * 1e6
    assert result["floor_ms"] == pytest.approx((weights + kv) / 0.01e9, rel=0.01)
    assert result["share_of_floor"] == pytest.approx(
        result["floor_ms"] / result["step_ms"]["median"], rel=0.01)


@pytest.mark.parametrize("arguments, word", [
    (("--bandwidth", 0), "--bandwidth is 0; it is in TB/s and must be positive"),
    (("--bandwidth", -2), "--bandwidth is -2"),
    (("e2e/prefill", "--profile", "/tmp/x.json"), "--profile traces one shape and e2e/prefill has"),
])
def test_wrong_looks_are_refused(arguments, word):
    assert word in refused(call("bench", "e2e", *arguments), 2)


def test_a_profile_that_cannot_be_written_is_refused_before_the_run():
    message = refused(call("bench", "e2e", "pp4", "--profile", "/no/such/folder/x.json"), 1)
    assert message.startswith("results cannot be written to /no/such/folder/x.json: ")


def test_the_workloads_of_records_are_there():
    message = refused(call("bench", "e2e", "nothing"), 2)
    for name in ("e2e/single", "e2e/locked", "e2e/batch64", "e2e/prefill", "e2e/context"):
        assert name in message
