# GGUF files: the bundled model as one file gives the same tokens, and broken files are refused.
# SPDX-License-Identifier: MIT
import json
import shutil
import struct

import pytest

from conftest import MODEL, call, call_json

np = pytest.importorskip("numpy", reason="numpy writes the GGUF files")
import gguf_writer  # noqa: E402


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    for kind in ("F32", "BF16", "Q8_0", "Q4_0"):
        gguf_writer.export(MODEL, folder / f"{kind}.gguf", kind)
    return folder


@pytest.mark.parametrize("kind", ["F32", "BF16"])
@pytest.mark.parametrize("index", [0, 3])
def test_a_gguf_file_gives_the_oracles_greedy_tokens(exported, oracle, kind, index):
    prompt = oracle["prompts"][index]
    answer = call_json("run", exported / f"{kind}.gguf", prompt, "-n", 64, "-t", 0,
                       "--dtype", "f32", "--json")
    assert answer["tokens"] == oracle["greedy"][index]


def write_folder(folder, values):
    """A copy of the bundled model with other weights, as F32."""
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    header, data = {}, b""
    for name, tensor in values.items():
        body = np.ascontiguousarray(tensor, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(body)]}
        data += body
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


@pytest.mark.parametrize("kind, form", [("Q8_0", "i8, groups of 32"), ("Q4_0", "i4, groups of 32")])
def test_a_quantised_gguf_file_computes_with_its_codes(tmp_path, kind, form):
    file = tmp_path / "model.gguf"
    folder = write_folder(tmp_path / "model", gguf_writer.export(MODEL, file, kind))
    flags = ["The river", "-n", 24, "-t", 0, "--dtype", "f32", "--json"]
    coded = call_json("run", file, *flags)
    values = call_json("run", file, *flags, "--weights", "plain")
    dense = call_json("run", folder, *flags)
    assert values["tokens"] == dense["tokens"]
    assert coded["tokens"] == dense["tokens"]
    assert coded["memory"]["weight_bytes"] < dense["memory"]["weight_bytes"]
    assert form in call("run", file, "The river", "-n", 1, "--verbose").stderr


def test_inspect_shows_a_gguf_file(exported):
    shown = call("inspect", exported / "Q4_0.gguf")
    assert shown.returncode == 0, shown.stderr
    assert "llama, 12,587,904 parameters" in shown.stdout or "12.6M" in shown.stdout, shown.stdout
    assert "Q4_0" in shown.stdout
    facts = call_json("inspect", exported / "Q4_0.gguf", "--json")
    assert facts["config"]["format"] == "gguf"
    assert facts["tensors"]["elements_by_type"]["Q4_0"] > 10_000_000


@pytest.mark.parametrize("change, words", [
    ({"general.architecture": "mamba"}, "general.architecture is 'mamba'; supported"),
    ({"llama.embedding_length": 385}, "model.embed_tokens.weight' has shape [8192, 384]"),
    ({"llama.rope.dimension_count": 32}, "llama.rope.dimension_count is 32"),
    ({"llama.rope.scaling.type": "longrope"}, "llama.rope.scaling.type is 'longrope'"),
    ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model is 'bert'; supported are gpt2"),
    ({"tokenizer.ggml.pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; supported are llama-bpe"),
    ({"tokenizer.ggml.bos_token_id": 9000}, "is 9000"),
    ({"llama.block_count": "six"}, "llama.block_count has another type"),
], ids=str)
def test_metadata_that_cannot_be_used_is_refused_by_its_key(tmp_path, change, words):
    file = tmp_path / "model.gguf"
    gguf_writer.export(MODEL, file, "Q4_0", **change)
    done = call("run", file, "Water is", "-n", 1)
    assert done.returncode == 1
    assert words in done.stderr, done.stderr


def test_a_file_that_is_cut_off_is_refused(exported, tmp_path):
    whole = (exported / "Q4_0.gguf").read_bytes()
    file = tmp_path / "model.gguf"
    for length in (0, 3, 20, 1000, 200_000, len(whole) - 1000):
        file.write_bytes(whole[:length])
        done = call("run", file, "Water is", "-n", 1)
        assert done.returncode == 1
        assert "model.gguf: " in done.stderr, done.stderr


def test_other_versions_and_types_are_refused(tmp_path):
    file = tmp_path / "model.gguf"
    metadata = {"general.architecture": "llama"}
    gguf_writer.write_gguf(file, metadata, {}, version=1)
    assert "has version 1; versions 2 and 3" in call("inspect", file).stderr
    gguf_writer.write_gguf(file, metadata, {"t": (16, (1, 256), b"\0" * 66)})
    assert "tensor 't' has elements of type number 16" in call("inspect", file).stderr
