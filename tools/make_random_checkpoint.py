"""Writes a checkpoint of random bf16 weights in the shape of Llama 3 8B, to time `quantize` with.

Usage: tools/make_random_checkpoint.py FOLDER [--layers N]

Weights are near normal with variance 1 / inputs, drawn once and repeated from other places, which
changes nothing for the time. The tokenizer is that of the bundled model, and calibration.txt is its
calibration text, repeated until it has more than 128 windows of 2,048 tokens.
"""
# SPDX-License-Identifier: MIT

import argparse
import json
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUNDLED = Path(__file__).resolve().parent.parent / "models" / "tessera-13m"
HIDDEN, INTER, HEADS, KV_HEADS, VOCAB = 4096, 14336, 32, 8, 128256
DRAWN = 1 << 20  # elements


def normal_bf16(inputs):
    """DRAWN numbers as bytes."""
    rng = random.Random(inputs)
    values = [sum(rng.random() for _ in range(4)) - 2 for _ in range(DRAWN)]
    scale = (3 / inputs) ** 0.5
    bits = struct.unpack(f"<{DRAWN}I", struct.pack(f"<{DRAWN}f", *(scale * v for v in values)))
    return struct.pack(f"<{DRAWN}H", *(b >> 16 for b in bits))


def layer_shapes(layer):
    head = HIDDEN // HEADS
    at = f"model.layers.{layer}."
    yield at + "input_layernorm.weight", (HIDDEN,)
    yield at + "post_attention_layernorm.weight", (HIDDEN,)
    for name, rows in (("q_proj", HIDDEN), ("k_proj", KV_HEADS * head), ("v_proj", KV_HEADS * head),
                       ("o_proj", HIDDEN)):
        yield at + f"self_attn.{name}.weight", (rows, HIDDEN)
    yield at + "mlp.gate_proj.weight", (INTER, HIDDEN)
    yield at + "mlp.up_proj.weight", (INTER, HIDDEN)
    yield at + "mlp.down_proj.weight", (HIDDEN, INTER)


def write_file(path, shapes, drawn):
    header, end = {}, 0
    for name, shape in shapes:
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for place, (name, shape) in enumerate(shapes):
            left = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            if len(shape) == 1:
                file.write(struct.pack("<H", 0x3f80) * (left // 2))
                continue
            numbers = memoryview(drawn[shape[1]])
            begin = 2 * (place * 7919 % DRAWN)
            while left > 0:
                part = numbers[begin:begin + left]
                file.write(part)
                left -= len(part)
                begin = 2 * ((begin // 2 + 104729) % DRAWN) if left else 0
    return {name: path.name for name, _ in shapes}, end


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True)
    drawn = {inputs: normal_bf16(inputs) for inputs in (HIDDEN, INTER)}
    files = [(f"model-{i:05}.safetensors", list(layer_shapes(i))) for i in range(options.layers)]
    rest = [("model.embed_tokens.weight", (VOCAB, HIDDEN)), ("model.norm.weight", (HIDDEN,)),
            ("lm_head.weight", (VOCAB, HIDDEN))]
    files.append(("model-rest.safetensors", rest))
    places, total = {}, 0
    with ThreadPoolExecutor() as pool:  # writing leaves the interpreter's lock
        written = pool.map(lambda file: write_file(folder / file[0], file[1], drawn), files)
    for more, size in written:
        places.update(more)
        total += size
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
              "intermediate_size": INTER, "num_hidden_layers": options.layers,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
              "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
              "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu"}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((BUNDLED / name).read_bytes())
    (folder / "calibration.txt").write_text((BUNDLED / "calibration.txt").read_text() * 10)


if __name__ == "__main__":
    main()
