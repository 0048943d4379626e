# Hostile models: weights that are not finite, names with terminal escapes, files that shrink while
# they are mapped.
# SPDX-License-Identifier: MIT
import json
import os
import shutil
import struct

import pytest

from conftest import MODEL, call

KV_TYPES = ["plain", "e4m3", "e5m2", "int8", "uint8", "int4", "int4_token"]
NOT_FINITE = {"nan": b"\xc0\x7f", "inf": b"\x80\x7f", "-inf": b"\x80\xff"}  # bf16
HOSTILE = "x\x1b[2J\r\ntessera: all is well‮"


def shards(folder):
    return sorted(folder.glob("*.safetensors"))


def place_of(path, tensor):
    """Where the bytes of a tensor begin and end in the file; None if it is in another."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    if tensor not in header:
        return None
    assert header[tensor]["dtype"] == "BF16"
    return [8 + length + offset for offset in header[tensor]["data_offsets"]]


def damaged_model(folder, tensor, element):
    shutil.copytree(MODEL, folder)
    places = {path: place for path in shards(folder) if (place := place_of(path, tensor))}
    assert len(places) == 1
    for path, (begin, end) in places.items():
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(element * ((end - begin) // 2))
    return folder


@pytest.fixture(scope="module", params=NOT_FINITE)
def bad_values(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("values") / "model"
    return damaged_model(folder, "model.layers.0.self_attn.v_proj.weight",
                         NOT_FINITE[request.param])


@pytest.fixture(scope="module", params=["q", "k"])
def bad_scores(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores") / "model"
    return damaged_model(folder, f"model.layers.0.self_attn.{request.param}_proj.weight",
                         NOT_FINITE["nan"])


def expect_no_text(done):
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert "finite" in done.stderr or "NaN" in done.stderr


@pytest.mark.parametrize("kv", KV_TYPES)
def test_values_that_are_not_finite_become_no_text(bad_values, kv):
    expect_no_text(call("run", bad_values, "The capital of", "-n", 4, "--kv", kv))


@pytest.mark.parametrize("kv", KV_TYPES)
def test_scores_that_are_not_finite_become_no_text(bad_scores, kv):
    expect_no_text(call("run", bad_scores, "The capital of", "-n", 4, "--kv", kv))


def test_weights_that_are_not_finite_are_not_quantised(bad_values):
    done = call("run", bad_values, "The capital of", "-n", 4, "--weights", "int8")
    expect_no_text(done)
    assert "'model.layers.0.self_attn.v_proj.weight' holds" in done.stderr


def expect_harmless(done, status):
    assert done.returncode == status, done.stderr
    text = done.stdout + done.stderr
    assert all(c == "\n" or c.isprintable() for c in text), repr(text)
    assert not any(line.startswith("tessera: all is well") for line in text.splitlines())


def test_hostile_names_do_not_reach_the_terminal(tmp_path):
    folder = tmp_path / HOSTILE
    expect_harmless(call("run", folder, "x"), 1)
    expect_harmless(call("inspect", folder), 1)
    expect_harmless(call("run", TESSERA_MODEL=str(folder)), 1)
    expect_harmless(call("run", "--dtype", HOSTILE), 2)
    expect_harmless(call("run", "x", TESSERA_DTYPE=HOSTILE), 2)
    expect_harmless(call(HOSTILE), 2)
    expect_harmless(call("perplexity", "--text", folder), 1)
    shutil.copytree(MODEL, folder)
    (folder / HOSTILE).write_text("")
    expect_harmless(call("inspect", folder, "--tensors"), 0)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] = {HOSTILE + name: shard for name, shard in index["weight_map"].items()}
    path.write_text(json.dumps(index))
    expect_harmless(call("run", folder, "x"), 1)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json",
                                  "generation_config.json", "model.safetensors.index.json"])
def test_bytes_after_nul_are_refused(tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    path = folder / name
    path.write_bytes((path.read_bytes() if path.exists() else b"{}") + b"\0{}")
    done = call("run", folder, "x", "-n", 1)
    assert done.returncode == 1
    assert "is NUL" in done.stderr and name in done.stderr


def test_a_template_with_nul_is_refused(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    (folder / "chat_template.jinja").write_bytes(b"{{ messages[0].content }}\0")
    done = call("run", folder, "x", "-n", 1)
    assert done.returncode == 1
    assert "is NUL" in done.stderr and "chat_template.jinja" in done.stderr


def test_a_file_that_is_cut_is_named(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    path = shards(folder)[0]
    os.truncate(path, path.stat().st_size // 2)
    done = call("run", folder, "x", "-n", 1)
    assert done.returncode == 1
    assert path.name in done.stderr


def test_positions_in_the_source_are_shown_when_asked_for():
    arguments = ["run", "/no/such", "x"]
    plain = call(*arguments)
    assert ".cpp:" not in plain.stderr
    for verbose in [call(*arguments, "--verbose"), call(*arguments, TESSERA_VERBOSE="1")]:
        assert verbose.returncode == 1
        assert verbose.stderr.startswith(plain.stderr.rstrip("\n") + " (model_options.cpp:")
    assert call(*arguments, TESSERA_VERBOSE="0").stderr == plain.stderr
