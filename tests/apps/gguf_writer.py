# Writes small GGUF files for tests: metadata, tensors in F32, BF16 and block formats, and a whole
# model folder as one file.
# SPDX-License-Identifier: MIT
import json
import struct

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def value_of(value):
    """The type and the bytes of a value; lists are of one type."""
    if isinstance(value, bool):
        return BOOL, struct.pack("<B", value)
    if isinstance(value, int):
        kind, code = (UINT32, "<I") if value >= 0 else (INT32, "<i")
        return kind, struct.pack(code, value)
    if isinstance(value, float):
        return FLOAT32, struct.pack("<f", value)
    if isinstance(value, (str, bytes)):
        return STRING, text(value)
    elements = [value_of(element) for element in value]
    kind = elements[0][0]
    assert all(element[0] == kind for element in elements)
    body = b"".join(element[1] for element in elements)
    return ARRAY, struct.pack("<IQ", kind, len(elements)) + body


def bf16_bytes(values):
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = bits + 0x7fff + (bits >> 16 & 1)
    return (rounded >> 16).astype("<u2").tobytes()


def blocks_of(values):
    rows = np.asarray(values, dtype=np.float32).reshape(-1, 32)
    return rows, np.abs(rows).max(axis=1, keepdims=True)


def q8_0(values):
    """The bytes, and the values they stand for."""
    rows, largest = blocks_of(values)
    scale = (largest / 127).astype(np.float16)
    codes = np.round(rows / np.maximum(scale.astype(np.float32), 1e-12)).clip(-127, 127)
    data = np.concatenate([scale.view(np.uint8), codes.astype(np.int8).view(np.uint8)], axis=1)
    return data.tobytes(), (codes * scale.astype(np.float32)).astype(np.float32)


def q4_0(values):
    rows, largest = blocks_of(values)
    scale = (largest / 7).astype(np.float16)
    codes = np.round(rows / np.maximum(scale.astype(np.float32), 1e-12)).clip(-8, 7)
    nibbles = (codes + 8).astype(np.uint8)
    data = np.concatenate([scale.view(np.uint8), nibbles[:, :16] | nibbles[:, 16:] << 4], axis=1)
    return data.tobytes(), (codes * scale.astype(np.float32)).astype(np.float32)


def encode(values, kind):
    """A tensor in a type, and the values that the type keeps of it."""
    values = np.asarray(values, dtype=np.float32)
    if kind == "F32":
        return values.astype("<f4").tobytes(), values
    if kind == "BF16":
        return bf16_bytes(values), values
    data, kept = {"Q8_0": q8_0, "Q4_0": q4_0}[kind](values)
    return data, kept.reshape(values.shape)


def write_gguf(path, metadata, tensors, *, version=3, alignment=32):
    """tensors: {name: (type, shape with rows first, bytes)}."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind, body = value_of(value)
        header += text(key) + struct.pack("<I", kind) + body
    data = b""
    for name, (kind, shape, body) in tensors.items():
        number = TYPES.get(kind, kind)
        header += text(name) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        header += struct.pack("<IQ", number, len(data))
        data += body + b"\0" * (-len(body) % alignment)
    header += b"\0" * (-len(header) % alignment)
    path.write_bytes(header + data)
    return path


def read_folder(folder):
    """The tensors of a folder of BF16 safetensors as f32."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "BF16"
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[begin:end], dtype="<u2").astype("<u4") << 16
            tensors[name] = bits.view("<f4").reshape(entry["shape"])
    return tensors


NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    for ours, theirs in (("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"),
                         ("lm_head", "output")):
        if name == ours + ".weight":
            return theirs + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def interleaved(rows, head_dim):
    """The halves of each head's rows in turn, as converters store q and k of a Llama."""
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)


def model_metadata(folder):
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    tokens = {id: token for token, id in tokenizer["model"]["vocab"].items()}
    tokens |= {id: token["content"] for id, token in added.items()}
    merges = [merge if isinstance(merge, str) else " ".join(merge)
              for merge in tokenizer["model"]["merges"]]
    return {
        "general.architecture": "llama", "general.name": folder.name,
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": config["head_dim"],
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.rope.freq_base": config["rope_parameters"]["rope_theta"],
        "llama.rope.dimension_count": config["head_dim"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [tokens[id] for id in range(len(tokens))],
        "tokenizer.ggml.token_type": [3 if id in added else 1 for id in range(len(tokens))],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": config["bos_token_id"],
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.add_bos_token": True}


def export(folder, path, kind="BF16", **more):
    """A model folder as a GGUF file whose matrices have one type; vectors are F32. Returns the
    values that the file holds, by the names of the folder."""
    config = json.loads((folder / "config.json").read_text())
    tensors, kept = {}, {}
    for name, values in read_folder(folder).items():
        if values.ndim == 1:
            tensors[gguf_name(name)] = ("F32", values.shape, encode(values, "F32")[0])
            kept[name] = values
            continue
        kept[name] = encode(values, kind)[1]
        turned = values
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            turned = interleaved(values, config["head_dim"])
        tensors[gguf_name(name)] = (kind, values.shape, encode(turned, kind)[0])
    write_gguf(path, model_metadata(folder) | more, tensors)
    return kept
