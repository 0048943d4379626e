# Bytes that are not what HTTP says, too many of them, or too slow. Plain sockets.
# SPDX-License-Identifier: MIT
import json
import socket
import ssl
import subprocess
import time

from conftest import serving, start_long


def talk(port, text, timeout=30):
    """Everything the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as peer:
        peer.sendall(text)
        return read_all(peer)


def read_all(peer):
    got = b""
    while True:
        part = peer.recv(65536)
        if not part:
            return got
        got += part


def status_of(answer):
    return int(answer.split()[1])


def post(body, *headers, path="/v1/completions", version="1.1"):
    head = f"POST {path} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    return (head + "".join(line + "\r\n" for line in headers) + "\r\n").encode() + body


SMALL = json.dumps({"prompt": "The", "max_tokens": 2}).encode()
CLOSE = "Connection: close"


def test_a_body_beyond_the_limit_is_refused_before_it_is_read():
    with serving("--max-body", "64K") as one:
        began = time.monotonic()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n"
        answer = talk(one.port, head + b"x" * 100)
        assert status_of(answer) == 413 and b"65536" in answer
        assert time.monotonic() - began < 5
        chunks = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks += (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 4
        assert status_of(talk(one.port, chunks)) == 413
        assert one.call("POST", "/v1/completions", SMALL)[0] == 200


def test_headers_beyond_the_limits_are_refused(server):
    long = b"GET /health HTTP/1.1\r\nA: " + b"a" * 70000 + b"\r\n\r\n"
    many = b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n"
    for text in (long, many, b"G" * 200000):
        assert status_of(talk(server.port, text)) in (431, 400)
    assert status_of(talk(server.port, long)) == status_of(talk(server.port, many)) == 431


def test_a_client_that_sends_slowly_is_ended_and_hinders_nobody():
    with serving("--read-timeout", "1") as one:
        slow = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(50)]
        for peer in slow:
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{")
        began = time.monotonic()
        assert one.call("POST", "/v1/completions", SMALL)[0] == 200
        for i in range(4):
            time.sleep(0.2)
            for peer in slow:
                peer.sendall(b" ")
        answers = [read_all(peer) for peer in slow]
        assert time.monotonic() - began < 20
        assert all(status_of(answer) == 408 for answer in answers)
        for peer in slow:
            peer.close()


def test_requests_in_a_row_are_answered_in_order(server):
    texts = [json.dumps({"prompt": "The", "max_tokens": count}).encode() for count in (1, 5, 2)]
    answer = talk(server.port, b"".join(map(post, texts[:2])) + post(texts[2], CLOSE))
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    counts = [int(part.split(b":")[1].split(b",")[0])
              for part in answer.split(b'"completion_tokens"')[1:] for part in [b"x" + part]]
    assert counts == [1, 5, 2]


def test_old_http_chunked_bodies_and_expectations(server):
    stream = json.dumps({"prompt": "The", "max_tokens": 3, "stream": True}).encode()
    answer = talk(server.port, post(stream, version="1.0"))
    assert b"chunked" not in answer and answer.endswith(b"data: [DONE]\n\n")
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" \
              b"Transfer-Encoding: chunked\r\n\r\n"
    for byte in SMALL:
        chunked += b"1\r\n" + bytes([byte]) + b"\r\n"
    assert status_of(talk(server.port, chunked + b"0\r\n\r\n")) == 200
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        head, body = post(SMALL, "Expect: 100-continue", CLOSE).split(b"\r\n\r\n", 1)
        peer.sendall(head + b"\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 100 Continue")
        peer.sendall(body)
        assert status_of(read_all(peer)) == 200


def test_what_is_not_http_is_refused(server):
    for text in (b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET\r\n\r\n",
                 b"GET / HTTP/9.9\r\n\r\n",
                 b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                 b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"):
        answer = talk(server.port, text + b"\r\n" * 4)
        assert status_of(answer) == 400, text
        assert b'"invalid_request_error"' in answer
    assert server.call("GET", "/health")[0] == 200


def test_a_client_that_reads_nothing_is_cut_off_and_hinders_nobody(tiny_model):
    with serving("--stream-buffer", "16K", model=tiny_model) as one:
        slow = []
        for _ in range(4):
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(("127.0.0.1", one.port))
            body = {"prompt": "The", "max_tokens": 2000, "ignore_eos": True, "stream": True,
                    "n": 4, "logprobs": 20}
            peer.sendall(post(json.dumps(body).encode()))
            slow.append(peer)
        assert one.call("POST", "/v1/completions", SMALL)[0] == 200
        one.wait_for(lambda: one.metrics()["lost_clients_total"] == 4, seconds=120)
        one.wait_until_idle()
        assert one.metrics()["num_requests_running"] == 0
        for peer in slow:
            peer.close()


def test_more_connections_than_allowed_are_refused():
    with serving("--max-connections", "8") as one:
        open_ones = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(8)]
        time.sleep(0.2)
        answer = talk(one.port, b"GET /health HTTP/1.1\r\n\r\n")
        assert status_of(answer) == 503 and b"Retry-After" in answer
        for peer in open_ones:
            peer.close()
        time.sleep(0.2)
        assert one.call("GET", "/health")[0] == 200


def test_https(tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    with serving("--tls-cert", cert, "--tls-key", key) as one:
        assert one.address.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        with socket.create_connection(("127.0.0.1", one.port), timeout=30) as peer:
            with context.wrap_socket(peer, server_hostname="127.0.0.1") as safe:
                safe.sendall(post(json.dumps({"prompt": "The", "max_tokens": 30,
                                              "stream": True}).encode()))
                got = b""
                while not got.endswith(b"0\r\n\r\n"):
                    got += safe.recv(65536)
        assert status_of(got) == 200 and b"data: [DONE]" in got
        assert not talk(one.port, b"GET /health HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_large_prompt_does_not_hold_up_others(server):
    body = json.dumps({"prompt": "word " * 1500000, "max_tokens": 1}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
        peer.sendall(post(body, CLOSE))
        began = time.monotonic()
        assert server.call("GET", "/health")[0] == 200
        assert time.monotonic() - began < 1
        assert b"context_length_exceeded" in read_all(peer)


def test_long_answers_run_beside_each_other(server):
    several = [start_long(server, 50) for _ in range(8)]
    texts = [one.getresponse().read() for one in several]
    assert all(text.endswith(b"data: [DONE]\n\n") for text in texts)
    for one in several:
        one.close()
