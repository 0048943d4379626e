# Quantised checkpoints, decoded here by the rules of their formats.
# SPDX-License-Identifier: MIT
import json
import math

import numpy as np
import pytest

from conftest import MODEL, call, call_json

TYPES = {"I32": np.int32, "I64": np.int64, "F32": np.float32, "F16": np.float16, "I8": np.int8,
         "BF16": np.uint16, "F8_E4M3": np.uint8}
NAME = "model.layers.{}.{}"
MODULES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def read_tensors(folder):
    """All tensors of a folder by name; bf16 and e4m3 become float32."""
    tensors = {}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for file in sorted(set(index["weight_map"].values())):
        data = (folder / file).read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        header.pop("__metadata__")
        for name, entry in header.items():
            assert index["weight_map"][name] == file
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"])
            if entry["dtype"] == "BF16":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            if entry["dtype"] == "F8_E4M3":
                values = np.array([e4m3(code) for code in range(256)], np.float32)[values]
            tensors[name] = values
    assert set(tensors) == set(index["weight_map"])
    return tensors


def e4m3(code):
    sign = -1.0 if code & 128 else 1.0
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa * 2.0 ** -9
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def unpack(words, bits, axis, count):
    """Codes of `bits` along an axis, the first in the lowest bits of a word."""
    words = np.moveaxis(words.view(np.uint32), axis, -1)
    codes = np.stack([words >> np.uint32(bits * i) & np.uint32(2 ** bits - 1)
                      for i in range(32 // bits)], axis=-1)
    codes = codes.reshape(*words.shape[:-1], -1)[..., :count].astype(np.int32)
    return np.moveaxis(codes, -1, axis)


def decode_compressed(tensors, module, weights):
    scale = tensors[module + ".weight_scale"].astype(np.float32)
    bits = weights["num_bits"]
    if module + ".weight_packed" in tensors:
        rows, cols = tensors[module + ".weight_shape"]
        codes = unpack(tensors[module + ".weight_packed"], bits, 1, cols) - 2 ** (bits - 1)
    else:
        codes = tensors[module + ".weight"]
        rows, cols = codes.shape
    if weights["strategy"] == "block":
        down, across = weights["block_structure"]
        scale = np.repeat(np.repeat(scale, down, 0), across, 1)[:rows, :cols]
        return codes.astype(np.float32) * scale
    groups = tensors.get(module + ".weight_g_idx",
                         np.arange(cols) // (cols // scale.shape[1]))
    zero = np.zeros_like(scale, dtype=np.int32)
    if not weights["symmetric"]:
        zero = unpack(tensors[module + ".weight_zero_point"], bits, 0, rows) - 2 ** (bits - 1)
    return (codes - zero[:, groups]).astype(np.float32) * scale[:, groups]


def decode_gptq(tensors, module, config):
    bits = config["bits"]
    codes = unpack(tensors[module + ".qweight"], bits, 0, tensors[module + ".g_idx"].size)
    scales = tensors[module + ".scales"].astype(np.float32)
    zeros = unpack(tensors[module + ".qzeros"], bits, 1, scales.shape[1])
    if config["checkpoint_format"] == "gptq":
        zeros = zeros + 1
    groups = tensors[module + ".g_idx"]
    return ((codes - zeros[groups]).astype(np.float32) * scales[groups]).T


CASES = {
    "int4": ["--method", "rtn"],
    "int4 symmetric, groups of 32": ["--method", "rtn", "--symmetric", "--group", "32"],
    "int4 by row": ["--method", "rtn", "--group", "0"],
    "int8": ["--method", "rtn", "--weights", "int8"],
    "fp8": ["--method", "rtn", "--weights", "fp8"],
    "fp8_block": ["--method", "rtn", "--weights", "fp8_block"],
    "gptq by group": ["--method", "gptq", "--act-order", "group"],
    "gptq by weight": ["--method", "gptq", "--act-order", "weight", "--symmetric"],
    "gptq as it lies": ["--method", "gptq", "--act-order", "off", "--clip", "off"],
    "awq": ["--method", "awq"],
}
FEW = ["--samples", "2", "--length", "128", "--keep", "layers.1.,layers.2.,layers.3.,layers.4."]


@pytest.mark.parametrize("flags", CASES.values(), ids=CASES.keys())
def test_files_hold_the_values_of_the_codes(tmp_path, flags):
    call_json("quantize", MODEL, tmp_path / "codes", *flags, *FEW, "--json")
    call_json("quantize", MODEL, tmp_path / "dense", *flags, *FEW, "--format", "dense", "--json")
    codes, dense = read_tensors(tmp_path / "codes"), read_tensors(tmp_path / "dense")
    config = json.loads((tmp_path / "codes" / "config.json").read_text())["quantization_config"]
    group = config["config_groups"]["group_0"]
    assert "model.layers.3.mlp.up_proj" in config["ignore"]
    for layer in (0, 5):
        for module in MODULES:
            name = NAME.format(layer, module)
            values = decode_compressed(codes, name, group["weights"])
            assert np.array_equal(values, dense[name + ".weight"]), name
    kept = NAME.format(3, "mlp.up_proj.weight")
    assert np.array_equal(codes[kept], dense[kept])


@pytest.mark.parametrize("flags", (["--symmetric"], ["--act-order", "group"],
                                   ["--weights", "int8", "--method", "rtn"]), ids=str)
def test_gptq_files_hold_the_values_of_the_codes(tmp_path, flags):
    call_json("quantize", MODEL, tmp_path / "codes", *flags, *FEW, "--format", "gptq", "--json")
    tensors = read_tensors(tmp_path / "codes")
    original = read_tensors(MODEL)
    config = json.loads((tmp_path / "codes" / "config.json").read_text())["quantization_config"]
    bound = 0.02 if config["bits"] == 8 else 0.2
    for module in MODULES:
        name = NAME.format(0, module)
        values = decode_gptq(tensors, name, config)
        want = original[name + ".weight"]
        assert np.linalg.norm(values - want) < bound * np.linalg.norm(want), name


def test_quantize_measures_perplexity(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(("Water is a chemical compound of hydrogen and oxygen. " * 60))
    answer = call_json("quantize", MODEL, tmp_path / "out", "--method", "rtn", "--weights", "int8",
                       "--evaluate", text, "--window", "128", "--limit", "2", "--json")
    before, after = answer["evaluate"]["ppl_before"], answer["evaluate"]["ppl_after"]
    plain = call_json("perplexity", MODEL, "--text", text, "--window", "128", "--limit", "2",
                      "--dtype", "f32", "--json")
    assert abs(before - plain["ppl"]) < 1e-3 * before
    assert before != after and abs(after - before) < 0.05 * before
    assert answer["bytes_after"] < answer["bytes_before"]
    assert len(answer["layers"]) == 42


def test_the_bundled_twin_is_the_model_in_4_bits():
    twin = MODEL.parent / "tessera-13m-int4"
    tensors, original = read_tensors(twin), read_tensors(MODEL)
    config = json.loads((twin / "config.json").read_text())["quantization_config"]
    weights = config["config_groups"]["group_0"]["weights"]
    assert weights["num_bits"] == 4 and weights["group_size"] == 128
    for layer in range(6):
        for module in MODULES:
            name = NAME.format(layer, module)
            want = original[name + ".weight"]
            error = np.linalg.norm(decode_compressed(tensors, name, weights) - want)
            assert 0.05 * np.linalg.norm(want) < error < 0.2 * np.linalg.norm(want), name
    shown = call_json("inspect", twin, "--json")
    kept = {one["as"]: one["count"] for one in shown["linear_layers"]}
    assert sum(count for form, count in kept.items() if form.startswith("i4, groups of 128")) == 24
    assert shown["weight_bytes"]["stored"] < 0.5 * shown["weight_bytes"]["bf16"]
    assert "stored" in {row["weights"] for row in shown["fit"]}


def test_the_bundled_twin_predicts_nearly_as_the_model():
    text = MODEL / "calibration.txt"
    few = ["--text", text, "--window", "256", "--limit", "4", "--json"]
    twin = MODEL.parent / "tessera-13m-int4"
    ppl = call_json("perplexity", MODEL, *few)["ppl"]
    of_twin = call_json("perplexity", twin, *few)["ppl"]
    dequantised = call_json("perplexity", twin, "--weights", "plain", *few)["ppl"]
    assert ppl < of_twin < 1.15 * ppl
    assert abs(of_twin - dequantised) < 0.005 * of_twin


def test_scales_of_keys_and_values_are_calibrated_and_used(tmp_path):
    call_json("quantize", MODEL, tmp_path / "out", "--method", "rtn", "--weights", "int8", "--kv",
              "--samples", "2", "--length", "128", "--json")
    tensors = read_tensors(tmp_path / "out")
    scales = [tensors[NAME.format(layer, f"self_attn.{part}_scale")].item()
              for layer in range(6) for part in "kv"]
    assert all(0 < scale < 1 for scale in scales)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["kv_cache_scheme"]["type"] == "float"
    few = ["--text", MODEL / "calibration.txt", "--window", "128", "--limit", "2", "--json"]
    plain = call_json("perplexity", tmp_path / "out", *few)["ppl"]
    e4m3 = call_json("perplexity", tmp_path / "out", "--kv", "e4m3", *few)["ppl"]
    without = call_json("perplexity", MODEL, "--weights", "int8", "--kv", "e4m3", *few)["ppl"]
    assert abs(e4m3 - plain) < 0.02 * plain and e4m3 != plain and e4m3 != without


def test_quantize_refuses_by_name(tmp_path):
    done = call("quantize", MODEL, tmp_path / "out", "--method", "awq", "--weights", "fp8")
    assert done.returncode == 1 and "awq makes int4" in done.stderr
    done = call("quantize", MODEL, tmp_path / "out", "--group", "100")
    assert done.returncode == 1 and "down_proj" in done.stderr and "--group" in done.stderr
    assert call("quantize", MODEL).returncode == 2
