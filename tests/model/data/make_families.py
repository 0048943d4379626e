#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the small random checkpoints of this folder, and what Hugging Face's library computes.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python make_families.py [family ...]

Each family gets a folder with config.json, model.safetensors (bf16) and expected.safetensors: a
prompt, the f32 logits of its every position, and the tokens that follow greedily. Sizes are small
and features strong (narrow windows, low softcaps, norms far from 1), so that leaving one out would
show.
"""
import math
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_attention_heads=4,
             num_key_value_heads=2, num_hidden_layers=2, max_position_embeddings=512,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)

FAMILIES = {
    "qwen3": (transformers.Qwen3Config, dict(head_dim=24, rope_theta=1e6, rms_norm_eps=1e-6)),
    "phi3": (transformers.Phi3Config, dict(sliding_window=11, rms_norm_eps=1e-5)),
    "gemma2": (transformers.Gemma2Config, dict(
        num_hidden_layers=3, head_dim=24, query_pre_attn_scalar=40, sliding_window=9,
        attn_logit_softcapping=4.0, final_logit_softcapping=3.0, rms_norm_eps=1e-6)),
    "olmo2": (transformers.Olmo2Config, dict(rope_theta=5e5, rms_norm_eps=1e-6)),
    "granite": (transformers.GraniteConfig, dict(
        attention_bias=True, mlp_bias=True, embedding_multiplier=7.0, logits_scaling=3.0,
        residual_multiplier=0.35, attention_multiplier=0.15, tie_word_embeddings=True)),
}
PROMPT = 40
GREEDY = 24


def fill(model, generator):
    """Weights that keep activations in size, norms and biases of some tenths; all exact in bf16."""
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 2:
            values *= 1.4 / math.sqrt(parameter.shape[1])
        elif "norm" in name:
            # A norm's weight as its module starts it, 1 or for Gemma 0, and some tenths.
            values = parameter.data.float() + 0.3 * values
        else:
            values *= 0.3
        parameter.data = values.bfloat16().float()


def make(family, folder):
    config_class, options = FAMILIES[family]
    config = config_class(**{**SIZES, **options})
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                          attn_implementation="eager").eval()
    fill(model, torch.Generator().manual_seed(len(family) + ord(family[0])))
    model.tie_weights()
    tokens = torch.randint(3, SIZES["vocab_size"], (1, PROMPT),
                           generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits[0]
        sequence = tokens
        for _ in range(GREEDY):
            following = model(sequence, use_cache=False).logits[0, -1].argmax()
            sequence = torch.cat([sequence, following.reshape(1, 1)], dim=1)
    folder.mkdir(parents=True, exist_ok=True)
    greedy = sequence[0, PROMPT:].to(torch.int32).contiguous()
    save_file({"prompt": tokens[0].to(torch.int32), "logits": logits.float().contiguous(),
               "greedy": greedy}, folder / "expected.safetensors")
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    spread = logits.std(dim=-1).mean().item()
    top2 = logits[-1].topk(2).values
    gap = (top2[0] - top2[1]).item()
    print(f"{family}: spread {spread:.3f}, gap {gap:.4f}, greedy {greedy.tolist()}")


def main():
    here = pathlib.Path(__file__).resolve().parent
    for family in sys.argv[1:] or FAMILIES:
        make(family, here / family)


if __name__ == "__main__":
    main()
