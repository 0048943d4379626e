#!/usr/bin/env python3
"""Measures how long `tessera run` takes from its start to the first token of a large checkpoint.

Usage: tools/measure_load.py BINARY FOLDER [--shape NAME] [--rounds N] [--json FILE] [-- FLAGS...]

Writes a checkpoint with random weights into FOLDER unless one is there already (put it on a
memory-backed file system, such as /dev/shm, or have enough memory for the page cache), then runs
the program on it several times. FLAGS go to `tessera run`.
"""
# SPDX-License-Identifier: MIT
#
# The time begins before the process is started and ends when its first token is reported, which
# `tessera run --verbose` does at once. The first round is not counted: it fills the page cache.
# The tokenizer is made up, with the sizes of Llama 3's: 128,000 tokens and 280,147 merges, so that
# reading it takes as long.

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import re
import statistics
import struct
import subprocess
import sys
import time

# layers, hidden, inter, heads, KV heads, head_dim, vocab
SHAPES = {
    "tiny": (2, 256, 512, 4, 2, 64, 2048),
    "llama3.2-1b-untied": (16, 2048, 8192, 32, 8, 64, 128256),
    "llama3-8b": (32, 4096, 14336, 32, 8, 128, 128256),
}
BLOCK_BYTES = 64 << 20
NUM_MERGES = 280147
# The bar: this rate for the weights, and this many seconds for everything else.
BAR_GBS, BAR_SECONDS = 20.0, 0.7


def tensors_of(shape):
    """(name, shape) of every tensor of a Llama checkpoint."""
    layers, hidden, inter, heads, kv_heads, head_dim, vocab = shape
    yield "model.embed_tokens.weight", [vocab, hidden]
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [hidden]
        yield at + "self_attn.q_proj.weight", [heads * head_dim, hidden]
        yield at + "self_attn.k_proj.weight", [kv_heads * head_dim, hidden]
        yield at + "self_attn.v_proj.weight", [kv_heads * head_dim, hidden]
        yield at + "self_attn.o_proj.weight", [hidden, heads * head_dim]
        yield at + "post_attention_layernorm.weight", [hidden]
        yield at + "mlp.gate_proj.weight", [inter, hidden]
        yield at + "mlp.up_proj.weight", [inter, hidden]
        yield at + "mlp.down_proj.weight", [hidden, inter]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [vocab, hidden]


def random_block(rng):
    """bf16 between 2^-7 and 2^-5, of either sign: what a matrix of some thousand columns has."""
    block = bytearray(BLOCK_BYTES)
    signs = bytes(0x3C | (i & 0x80) for i in range(256))
    block[0::2] = rng.randbytes(BLOCK_BYTES // 2)
    block[1::2] = rng.randbytes(BLOCK_BYTES // 2).translate(signs)
    return bytes(block)


def write_weights(path, shape):
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, sizes in tensors_of(shape):
        end = begin + 2 * sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(7)
    block = memoryview(random_block(rng))
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, sizes in tensors_of(shape):
            left = header[name]["data_offsets"][1] - header[name]["data_offsets"][0]
            if len(sizes) == 1:  # a norm without effect
                file.write(b"\x80\x3f" * sizes[0])
                continue
            while left > 0:  # a different part of the block each time
                first = rng.randrange(BLOCK_BYTES // 4) * 2
                left -= file.write(block[first:first + min(left, BLOCK_BYTES // 2)])
    return begin


def byte_letters():
    """GPT-2's letter for each byte."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte if byte in own else 256 + extra)
        extra += byte not in own
    return letters


def make_tokenizer(vocab):
    """A byte-level BPE with `vocab` ids, 256 of them control tokens."""
    num_plain = vocab - 256
    letters = list(byte_letters().values())
    tokens = list(letters)
    for length in range(2, 5):  # all texts of 40 letters, the short ones first
        texts = itertools.product(letters[64:104], repeat=length)
        tokens += ("".join(text) for text in itertools.islice(texts, num_plain - len(tokens)))
    ids = {token: i for i, token in enumerate(tokens)}
    # Every way to cut a token in two, as in vocabularies converted from lists of tokens.
    cuts = ((token[:cut], token[cut:]) for token in tokens for cut in range(1, len(token)))
    merges = [" ".join(pair) for pair in itertools.islice(cuts, NUM_MERGES)]
    special = [{"id": num_plain + i, "content": f"<|special_{i}|>", "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i in range(256)]
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0", "added_tokens": special, "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": False},
            {**level, "use_regex": False}]},
        "decoder": {**level, "use_regex": True},
        "model": {"type": "BPE", "ignore_merges": True, "vocab": ids, "merges": merges},
    }


def write_checkpoint(folder, shape):
    layers, hidden, inter, heads, kv_heads, head_dim, vocab = shape
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(make_tokenizer(vocab), ensure_ascii=False))
    begin = time.monotonic()
    num_bytes = write_weights(folder / "model.safetensors", shape)
    print(f"wrote {num_bytes / 1e9:.2f} GB in {time.monotonic() - begin:.1f} s", file=sys.stderr)
    # Last, so that a folder with it is complete.
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": inter,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "vocab_size": vocab, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "eos_token_id": vocab - 1}))


PHASE = re.compile(r"^\[ *([0-9.]+) s\] ([a-z ]+?):? +([0-9.]+) ms(.*)$")


def run_once(binary, folder, flags):
    """Seconds to the first token, and the phases that the program reports, by name."""
    command = [binary, "run", str(folder), "a b c d e f g h", "--verbose", "--temperature", "0",
               "--max-tokens", "4", "--ignore-eos", *flags]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               errors="replace")
    first, phases, lines = None, {}, []
    for line in process.stderr:
        now = time.monotonic() - begin
        lines.append(line)
        found = PHASE.match(line.rstrip())
        if not found:
            continue
        phases[found[2]] = {"ends_s": float(found[1]), "ms": float(found[3])}
        if rest := found[4].strip(" ,"):
            phases[found[2]]["note"] = rest
        if found[2] == "first token":
            first = now
    process.stdout.read()
    if process.wait() != 0 or first is None:
        sys.exit(f"measure_load: {' '.join(command)} ended with status {process.returncode}:\n"
                 + "".join(lines))
    return first, phases, "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama3-8b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the results to this file")
    # argparse does not find positionals behind options.
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    flags = sys.argv[end + 1:]
    if not (options.folder / "config.json").exists():
        write_checkpoint(options.folder, SHAPES[options.shape])
    num_bytes = (options.folder / "model.safetensors").stat().st_size
    rounds = [run_once(options.binary, options.folder, flags)
              for _ in range(options.rounds + 1)]
    times = sorted(first for first, _, _ in rounds[1:])
    median = statistics.median(times)
    bar = num_bytes / BAR_GBS / 1e9 + BAR_SECONDS
    closest = min(rounds[1:], key=lambda one: abs(one[0] - median))
    print(closest[2], end="")
    print(f"{options.shape}, {num_bytes / 1e9:.2f} GB: first token after {median:.3f} s "
          f"({times[0]:.3f} to {times[-1]:.3f}; first round {rounds[0][0]:.3f}), bar {bar:.3f} s: "
          f"{'met' if median <= bar else 'missed'}")
    if options.json:
        version = subprocess.run([options.binary, "--version"], capture_output=True, text=True)
        result = {
            "what": "seconds from the start of the process to the first token",
            "version": version.stdout.strip(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": platform.machine(), "cpus": len(os.sched_getaffinity(0)),
            "shape": options.shape, "checkpoint_bytes": num_bytes, "flags": flags,
            "first_token_s": {"median": round(median, 4), "least": round(times[0], 4),
                              "most": round(times[-1], 4)},
            "first_round_s": round(rounds[0][0], 4), "bar_s": round(bar, 4),
            "phases": closest[1], "rounds": options.rounds,
        }
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
