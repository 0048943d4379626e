# Loading, overload, clients that leave, and the end of the server.
# SPDX-License-Identifier: MIT
import json
import os
import resource
import signal
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Server, serving, start_long


def test_it_is_healthy_only_once_the_model_runs(tmp_path):
    one = Server(is_awaited=False)
    seen = []
    while not seen or seen[-1][0] != 200:
        try:
            seen.append(one.call("GET", "/health"))
        except OSError:
            assert one.process.poll() is None
    assert all(status == 503 and body["status"] == "loading" and 0 <= body["progress"] <= 1
               for status, body in seen[:-1])
    assert seen[-1] == (200, {"status": "ok"})
    assert one.end() == 0


def test_more_requests_than_it_takes_are_answered_429_at_once():
    with serving("--max-batch", "1", "--max-queue", "2") as one:
        kept = [start_long(one) for _ in range(3)]
        one.wait_for(lambda: one.metrics()["num_requests_admitted"] == 3)
        body = json.dumps({"prompt": "The", "max_tokens": 1})
        slowest = 0
        for _ in range(30):
            began = time.monotonic()
            status, headers, text = one.call_raw("POST", "/v1/completions", body)
            slowest = max(slowest, time.monotonic() - began)
            assert status == 429 and headers["Retry-After"] == "1", text
            assert json.loads(text)["error"]["type"] == "rate_limit_error"
        print(f"slowest 429: {slowest * 1e3:.1f} ms")
        assert slowest < 1
        for connection in kept:
            connection.close()
        one.wait_until_idle()
        assert one.call("POST", "/v1/completions", body)[0] == 200


@pytest.mark.parametrize("stage", ["queued", "prefill", "decode", "whole"])
def test_a_client_that_leaves_frees_its_place(stage):
    with serving("--max-batch", "1") as one:
        first = start_long(one)
        one.wait_for(lambda: one.metrics()["num_requests_running"] == 1)
        if stage == "queued":
            second = start_long(one)
            one.wait_for(lambda: one.metrics()["num_requests_admitted"] == 2)
            second.close()
            one.wait_for(lambda: one.metrics()["num_requests_admitted"] == 1)
            assert one.metrics()["num_requests_running"] == 1
        elif stage == "prefill":
            first.close()
            one.wait_until_idle()
            first = start_long(one, 1, prompt=[7] * 2000)
        elif stage == "decode":
            assert first.getresponse().read(100)
        else:
            first.close()
            first = start_long(one, stream=False)
            one.wait_for(lambda: one.metrics()["num_requests_admitted"] >= 1)
        first.close()
        one.wait_until_idle()
        after = one.metrics()
        assert after["num_requests_running"] == 0 and after["kv_cache_usage_perc"] == 0
        assert after["lost_clients_total"] >= 1
        assert 'finished_reason="abort"' in one.call("GET", "/metrics")[1]


def test_sigterm_lets_answers_end_and_refuses_new_ones():
    one = Server()
    long = start_long(one, 1800)
    response = long.getresponse()
    idle = one.connect()
    idle.request("GET", "/health")
    assert idle.getresponse().read() == b'{"status":"ok"}'
    one.process.send_signal(signal.SIGTERM)
    one.wait_for(lambda: one.call("GET", "/health")[0] == 503)
    assert one.call("GET", "/health")[1] == {"status": "draining"}
    assert one.call("POST", "/v1/completions", {"prompt": "The"})[0] == 503
    assert response.read().endswith(b"data: [DONE]\n\n")
    assert one.process.wait(timeout=30) == 0
    one.end()


def test_a_request_on_its_way_at_sigterm_is_answered():
    """Only connections between two requests are closed: the others have a request on its way."""
    ask = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving() as one:
        long = start_long(one, 1800)
        response = long.getresponse()
        silent, half, answered, continued = (
            socket.create_connection(("127.0.0.1", one.port), timeout=30) for _ in range(4))
        half.sendall(ask[:20])
        answered.sendall(ask)
        assert answered.recv(1000).startswith(b"HTTP/1.1 200")
        body = b'{"prompt": "The", "max_tokens": 1}'
        continued.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(body))
        assert continued.recv(1000).startswith(b"HTTP/1.1 100")
        one.process.send_signal(signal.SIGTERM)
        assert answered.recv(1000) == b""
        silent.sendall(ask)
        half.sendall(ask[20:])
        continued.sendall(body)
        for peer in (silent, half, continued):
            assert peer.recv(1000).startswith(b"HTTP/1.1 503"), peer
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert one.process.wait(timeout=30) == 0
        for peer in (silent, half, answered, continued):
            peer.close()


def test_after_the_drain_timeout_answers_are_aborted():
    one = Server("--drain-timeout", "0.2")
    long = start_long(one, 1900)
    response = long.getresponse()
    one.process.send_signal(signal.SIGINT)
    text = response.read().decode()
    assert '"finish_reason":"abort"' in text and text.endswith("data: [DONE]\n\n")
    assert one.process.wait(timeout=30) == 0
    one.end()


def test_a_second_signal_ends_it_at_once():
    one = Server()
    long = start_long(one, 1900)
    long.getresponse()
    one.process.send_signal(signal.SIGINT)
    one.wait_for(lambda: one.call("GET", "/health")[0] == 503)
    began = time.monotonic()
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(timeout=10) == 130
    assert time.monotonic() - began < 2
    long.close()
    one.end()


def test_an_idle_server_ends_at_once():
    one = Server()
    began = time.monotonic()
    assert one.end() == 0
    assert time.monotonic() - began < 5


def test_a_folder_without_weights_is_an_error_of_one_line(tmp_path, tiny_model):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny_model / name).read_bytes())
    one = Server(model=folder, is_awaited=False)
    assert one.process.wait(timeout=60) == 1
    assert one.errors().count("\n") == 1
    one.end()


def test_too_little_memory_has_a_status_of_its_own():
    one = Server("--kv-bytes", "1000G", is_awaited=False)
    assert one.process.wait(timeout=60) == 3
    one.end()


def test_a_model_whose_file_is_gone_goes_on(tmp_path, tiny_model):
    import shutil
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model, folder)
    with serving(model=folder) as one:
        shutil.rmtree(folder)
        assert one.complete()["usage"]["completion_tokens"] > 0


def descriptors(one):
    return len(list(Path(f"/proc/{one.process.pid}/fd").iterdir()))


def resident(one):
    for line in Path(f"/proc/{one.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024


def test_a_thousand_streams_and_what_is_beyond_them(tiny_model):
    """All streams are answered whole, more are refused at once, and nothing is left behind."""
    num_streams, num_tokens, num_beyond = 1000, 192, 20
    max_batch, num_first_tokens = 128, 1000
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    with serving("--max-batch", max_batch, "--max-queue", num_streams - max_batch,
                 "--log", "errors", model=tiny_model) as one:
        one.complete()
        start_descriptors, start_memory = descriptors(one), resident(one)

        def body(num_tokens):
            return json.dumps({"prompt": "The city of", "max_tokens": num_tokens,
                               "ignore_eos": True, "temperature": 0, "stream": True})

        began = time.monotonic()
        connections = [one.connect(timeout=300) for _ in range(num_streams)]
        # The first ones are longer, so that none ends before the last has come.
        for i, connection in enumerate(connections):
            connection.request("POST", "/v1/completions",
                               body(num_first_tokens if i < max_batch else num_tokens))
        one.wait_for(lambda: one.metrics()["num_requests_admitted"] == num_streams)
        times = []
        for _ in range(num_beyond):
            asked = time.monotonic()
            status, headers, _ = one.call_raw("POST", "/v1/completions", body(1))
            times.append(time.monotonic() - asked)
            assert status == 429 and headers["Retry-After"]

        def read(connection):
            text = connection.getresponse().read().decode()
            connection.close()
            return text

        with ThreadPoolExecutor(16) as pool:
            texts = list(pool.map(read, connections))
        seconds = time.monotonic() - began
        whole = ["".join(json.loads(event[6:])["choices"][0]["text"]
                         for event in text.split("\n\n")[:-2]) for text in texts]
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert len(set(whole[:max_batch])) == len(set(whole[max_batch:])) == 1
        assert whole[0].startswith(whole[-1]) and len(whole[0]) > len(whole[-1]) > 0
        one.wait_until_idle()
        one.wait_for(lambda: descriptors(one) <= start_descriptors + 1)
        grown = resident(one) - start_memory
        refusal = statistics.median(times)
        print(f"{num_streams} streams of {num_tokens} tokens in {seconds:.1f} s; {num_beyond} more "
              f"refused, in {refusal * 1e3:.1f} ms, at most {max(times) * 1e3:.1f}; memory grew by "
              f"{grown / 1e6:.1f} MB")
        assert refusal < 0.05
        assert grown < 64e6
        assert one.metrics()["kv_cache_usage_perc"] == 0


def test_overload_does_not_grow_memory(tiny_model):
    with serving("--max-batch", "8", "--max-queue", "8", "--log", "errors",
                 model=tiny_model) as one:
        body = json.dumps({"prompt": "The", "max_tokens": 4})

        def ask(_):
            return one.call("POST", "/v1/completions", body)[0]

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(ask, range(200)))
            start = resident(one)
            statuses = list(pool.map(ask, range(1000)))
        assert set(statuses) <= {200, 429}
        assert resident(one) - start < 16e6
        assert os.path.exists(f"/proc/{one.process.pid}")
