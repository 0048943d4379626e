"""The two tables of the front page, which put results of record beside other systems.

Used by render_results.py, which writes them into README.md:
    <!-- systems:begin -->    Llama-3-8B end to end, beside the systems of peers.json
    <!-- families:begin -->   one line per kernel family: how its speed compares over all shapes
"""
# SPDX-License-Identifier: MIT

import json
import textwrap
from statistics import median

# The lines of the table: phase, weights, batch, tokens of the prompt, and our record of it.
END_TO_END = (
    ("decode", "bf16", 1, 512, "e2e_single"),
    ("decode", "bf16", 16, 512, "e2e_locked"),
    ("prefill", "bf16", 1, 512, "e2e_prefill"),
    ("prefill", "bf16", 1, 2048, "e2e_prefill"),
    ("prefill", "bf16", 16, 512, "e2e_prefill"),
    ("decode", "int4", 1, 512, "e2e_single_int4"),
    ("decode", "int4", 16, 512, "e2e_locked_int4"),
    ("prefill", "int4", 1, 512, "e2e_single_int4"),
)
SYSTEMS = ("torch.compile", "llama.cpp", "transformers")
# transformers was timed on prompt and answer together, which stands in for decode.
PHASES = {"decode": ("decode", "generate"), "prefill": ("prefill",)}

# Name of the family, its page, its records, which of their workloads, and the peers in them.
FAMILIES = (
    ("attention over prompts", "attention", ("attention", "attention_heads"),
     lambda workload: "e4m3" not in workload, "cuDNN, FlashAttention-2 and -3"),
    ("decode attention", "decode", ("decode", "decode_heads", "decode_random"),
     lambda workload: workload not in ("decode/formats", "decode/reference"),
     "cuDNN, FlashAttention-2"),
    ("decode over 8- and 4-bit caches", "decode", ("decode",),
     lambda workload: workload == "decode/formats", "the same, reading a 16-bit cache"),
    ("matrix products", "gemm", ("gemm_linear_own", "gemm_square"), None, "cuBLASLt"),
    ("products with activation", "gemm", ("gemm_ffn",), None, "PyTorch, torch.compile"),
    ("products in f32 and tf32", "gemm", ("gemm_f32",), None,
     "cuBLASLt, which serves them"),
    ("2:4 sparse products", "gemm_sparse", ("gemm_sparse",), None, None),
    ("norms, RoPE, activations, \u2026", "elementwise", ("elementwise",), None,
     "PyTorch, torch.compile"),
    ("KV append, gather, copy", "kv", ("kv",), None, None),
)


def load(root, name):
    path = root / "docs" / "results" / "h200" / f"{name}.json"
    if not path.exists():
        raise SystemExit(f"render_results: {path} does not exist")
    return json.loads(path.read_text())


def table(head, lines, align):
    rule = "|" + "|".join(align) + "|"
    rows = ["| " + " | ".join(cells) + " |" for cells in [head, *lines]]
    return "\n".join([rows[0], rule, *rows[1:]]) + "\n"


def length(prompt, generate):
    return f"{prompt} + {generate}" if generate else str(prompt)


def ours(root, phase, batch, prompt, record):
    """(tokens a second, tokens of prompt and answer) of our record, or None."""
    if record is None:
        return None
    for result in load(root, record)["results"]:
        shape = result["shape"]
        if (shape["batch"], shape["prompt"]) == (batch, prompt):
            return result[f"{phase}_tokens_per_second"], shape["generate"]
    raise SystemExit(f"render_results: {record}.json has no batch {batch} of {prompt} tokens")


def theirs(peers, system, phase, weights, batch, prompt):
    """The entry of another system for the same work; for decode a shorter prompt will do."""
    for entry in peers["end_to_end"]:
        if ((entry["system"], entry["weights"], entry["batch"]) == (system, weights, batch)
                and entry["phase"] in PHASES[phase]
                and (phase == "decode" or entry["prompt"] == prompt)):
            return entry
    return None


def systems_block(root):
    """Llama-3-8B: a line a workload, a column a system, and our speed over the best of them."""
    peers, single = load(root, "peers"), load(root, "e2e_single")
    int4 = load(root, "e2e_single_int4")
    lines = []
    for phase, weights, batch, prompt, record in END_TO_END:
        found = ours(root, phase, batch, prompt, record)
        cells = [f"{phase}, {weights}, batch {batch}"]
        if phase == "prefill":
            cells[0] += f", {prompt} tokens"
        mine = found[0] if found else None
        cells.append("not yet" if mine is None else f"**{mine:,.0f}**")
        if found and found[1]:
            cells[-1] += f" ({length(prompt, found[1])})"
        best = 0
        for system in SYSTEMS:
            entry = theirs(peers, system, phase, weights, batch, prompt)
            if entry is None:
                cells.append("-")
                continue
            best = max(best, entry["tokens_per_second"])
            text = f"{entry['tokens_per_second']:,.0f}"
            if entry["generate"]:
                text += f" ({length(entry['prompt'], entry['generate'])})"
            cells.append(text)
        cells.append("-" if mine is None or not best else f"{mine / best:.2f}\u00d7")
        lines.append(cells)
    software = peers["software"]
    note = (f"Tokens per second on one {peers['gpu']}, random weights; in brackets, tokens of the "
            f"prompt + tokens generated. Tessera by `tessera bench e2e --shape {single['model']}` "
            f"at commit `{single['commit'][:7]}`, int4 (groups of 128, head included) at "
            f"`{int4['commit'][:7]}`; the others measured on the same kind of GPU "
            f"(CUDA {peers['cuda']}), not in the same run: "
            + ", ".join(f"{system} ({software[system]})" for system in SYSTEMS) + ".")
    head = ["Llama-3-8B", "Tessera", *SYSTEMS, "Tessera / best other"]
    return table(head, lines, ["---"] + ["---:"] * (len(head) - 1)) + "\n" + "\n".join(
        textwrap.wrap(note, 112, break_on_hyphens=False)) + "\n"


def families_block(root):
    """Our speed over the best peer's, shape by shape: the median, and the worst."""
    lines = []
    for name, page, records, is_chosen, beside in FAMILIES:
        results = [r for record in records for r in load(root, record)["results"]
                   if is_chosen is None or is_chosen(r["workload"])]
        ratios = [min(peer["ratio"] for peer in r["peers"].values()) for r in results if r["peers"]]
        floors = [r["percent_of_floor"] for r in results
                  if r.get("percent_of_floor") and r["dtype"] != "f32"]  # the floor is of bf16
        lines.append([
            f"[{name}](docs/kernels/{page}.md)", str(len(ratios) or len(results)), beside or "-",
            f"{median(ratios):.2f}\u00d7" if ratios else "-",
            f"{min(ratios):.2f}\u00d7" if ratios else "-",
            f"{max(floors):.0f} %" if floors else "-",
        ])
    head = ["family", "shapes", "beside", "median", "worst", "best % of floor"]
    return table(head, lines, ["---", "---:", "---", "---:", "---:", "---:"])
