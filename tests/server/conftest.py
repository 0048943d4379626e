# A server under test on a free port of the loopback interface, and ways to talk to it.
# SPDX-License-Identifier: MIT
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models" / "tessera-13m"
TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message['role'] }}: "
            "{{ message['content'] }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")
# Tools as the models of Hermes and Qwen have them.
TOOL_TEMPLATE = (
    "{{ bos_token }}{% if tools %}Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}\n"
    "Call: <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call>\n{% endif %}"
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}"
    "{% for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>"
    "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, *flags, model=MODEL, is_awaited=True):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("TESSERA_")}
        self.log = tempfile.TemporaryFile()
        # A server that is awaited says which port it took. Otherwise the port must be known before,
        # and another process may take it in between.
        self.port = 0 if is_awaited else free_port()
        self.process = subprocess.Popen(
            [os.environ["TESSERA_BINARY"], "serve", *([str(model)] if model else []),
             *map(str, flags), "--port", str(self.port)],
            stdout=subprocess.PIPE, stderr=self.log, env=environment)
        if is_awaited:
            line = self.process.stdout.readline().decode()
            assert line.startswith("serving "), line + self.errors()
            self.address = line.split(" on ")[1].strip()
            self.port = int(self.address.rpartition(":")[2])

    def errors(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None):
        """The status and the parsed body; text that is not JSON stays text."""
        status, _, text = self.call_raw(method, path, body, headers)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text.decode()

    def call_raw(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def complete(self, prompt="The city of", **fields):
        fields = {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields}
        status, answer = self.call("POST", "/v1/completions", fields)
        assert status == 200, answer
        return answer

    def stream(self, path="/v1/completions", **fields):
        """The events of a stream, parsed, without the last, which must be [DONE]."""
        status, headers, text = self.call_raw("POST", path, {**fields, "stream": True})
        assert status == 200, text
        assert headers["Content-Type"] == "text/event-stream"
        events = text.decode().split("\n\n")
        assert events.pop() == ""
        assert events.pop() == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def metrics(self):
        """Lines without labels but the model's, by name."""
        values = {}
        for line in self.call("GET", "/metrics")[1].splitlines():
            if line.startswith("tessera_") and line.count("=") == 1:
                values[line.split("{")[0].removeprefix("tessera_")] = float(line.split()[-1])
        return values

    def wait_for(self, holds, seconds=30):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "waited in vain; " + self.errors()[-2000:]
            time.sleep(0.02)

    def wait_until_idle(self):
        self.wait_for(lambda: self.metrics()["num_requests_admitted"] == 0)

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(timeout=60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.stdout.close()


@contextlib.contextmanager
def serving(*flags, **named):
    server = Server(*flags, **named)
    try:
        yield server
    finally:
        server.end()
        server.log.close()


def start_long(server, num_tokens=1800, stream=True, **fields):
    """A connection on which a long answer is being made."""
    connection = server.connect()
    body = {"prompt": "The", "max_tokens": num_tokens, "ignore_eos": True, "stream": stream,
            **fields}
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection


@pytest.fixture(scope="session")
def server():
    with serving() as one:
        yield one


def with_template(folder, template):
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory):
    """The bundled model with a chat template."""
    return with_template(tmp_path_factory.mktemp("models") / "chatty", TEMPLATE)


@pytest.fixture(scope="session")
def tool_server(tmp_path_factory):
    """The bundled model with a chat template that knows tools."""
    with serving(model=with_template(tmp_path_factory.mktemp("models") / "handy",
                                     TOOL_TEMPLATE)) as one:
        yield one


@pytest.fixture(scope="session")
def test_python():
    """A Python with the packages of tests/requirements.txt."""
    python = Path(os.environ.get("TESSERA_TEST_PYTHON", REPOSITORY / "build/test_venv/bin/python"))
    if not python.exists():
        pytest.skip("tools/test_venv.sh could not install the packages of tests/requirements.txt")
    return python


@pytest.fixture(scope="session")
def chat_server(chat_model):
    with serving(model=chat_model) as one:
        yield one


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Two layers of 64 with random weights: steps that take no time."""
    import numpy
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODEL / name, folder / name)
    config = json.loads((MODEL / "config.json").read_text())
    vocab = config["vocab_size"]
    config.update(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=32, tie_word_embeddings=True,
                  torch_dtype="float32")
    (folder / "config.json").write_text(json.dumps(config))
    random = numpy.random.default_rng(7)
    shapes = {"model.embed_tokens.weight": [vocab, 64], "model.norm.weight": [64]}
    for i in range(2):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": [64],
                       at + "post_attention_layernorm.weight": [64],
                       at + "self_attn.q_proj.weight": [64, 64],
                       at + "self_attn.k_proj.weight": [32, 64],
                       at + "self_attn.v_proj.weight": [32, 64],
                       at + "self_attn.o_proj.weight": [64, 64],
                       at + "mlp.gate_proj.weight": [96, 64],
                       at + "mlp.up_proj.weight": [96, 64],
                       at + "mlp.down_proj.weight": [64, 96]})
    header, blocks, offset = {}, [], 0
    for name, shape in shapes.items():
        data = (random.standard_normal(shape) * 0.1).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        blocks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(blocks))
    return folder


@pytest.fixture(scope="session")
def tiny_tool_server(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-tools"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TOOL_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with serving("--context", "1024", "--log", "errors", model=folder) as one:
        yield one


def pytest_configure(config):
    if "TESSERA_BINARY" not in os.environ:
        raise pytest.UsageError("TESSERA_BINARY must name the tessera binary; ctest sets it")
