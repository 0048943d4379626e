# The official client as the judge of compatibility.
# SPDX-License-Identifier: MIT
import subprocess
from pathlib import Path

from conftest import serving

CASES = Path(__file__).parent / "openai_cases.py"


def run_cases(python, server, group):
    done = subprocess.run([str(python), str(CASES), f"http://127.0.0.1:{server.port}/v1", group],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


def test_completions_models_and_errors(test_python, server):
    run_cases(test_python, server, "base")


def test_chat(test_python, chat_server):
    run_cases(test_python, chat_server, "chat")


def test_embeddings(test_python, server):
    run_cases(test_python, server, "embeddings")


def test_tools(test_python, tool_server):
    run_cases(test_python, tool_server, "tools")


def test_structured_output(test_python, chat_server):
    run_cases(test_python, chat_server, "structured")


def test_keys_and_overload(test_python, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("right\n")
    with serving("--api-keys", keys, "--max-batch", "1", "--max-queue", "0") as one:
        run_cases(test_python, one, "limits")
