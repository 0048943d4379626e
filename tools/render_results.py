#!/usr/bin/env python3
# Writes measured tables and row tables into the Markdown pages, or checks that they are current.
# SPDX-License-Identifier: MIT
"""Blocks between markers belong to this tool; everything else on a page is left alone.

    <!-- results:begin h200/elementwise norm -->      from docs/results/h200/elementwise.json,
    <!-- results:end -->                              the results of the workload "norm" (or all)

    <!-- e2e:begin cpu -->                            from every docs/results/cpu/e2e*.json: whole
    <!-- e2e:end -->                                  models, one line per shape

    <!-- perplexity:begin -->                         from every docs/results/*/perplexity_*.json:
    <!-- perplexity:end -->                           one line per KV format, one column per machine

    <!-- systems:begin -->, <!-- families:begin -->   the tables of the front page (front_page.py)
    <!-- systems:end -->, <!-- families:end -->

    <!-- rows:begin -->                               in docs/kernels/FAMILY.md, from
    <!-- rows:end -->                                 `tessera bench FAMILY --list --markdown`

render_results.py                   writes the result blocks
render_results.py --rows BINARY     writes the row blocks too
render_results.py --check           writes nothing; exit status 1 where a page is out of date
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from front_page import families_block, systems_block

ROOT = Path(__file__).resolve().parent.parent
RESULTS = re.compile(
    r"(<!-- results:begin (?P<file>[\w/.-]+)(?: (?P<workload>[\w/.-]+))? -->\n)"
    r"(?P<body>.*?)(<!-- results:end -->)",
    re.DOTALL,
)
E2E = re.compile(
    r"(<!-- e2e:begin (?P<folder>[\w/.-]+) -->\n)(?P<body>.*?)(<!-- e2e:end -->)", re.DOTALL
)
PERPLEXITY = re.compile(
    r"(<!-- perplexity:begin -->\n)(?P<body>.*?)(<!-- perplexity:end -->)", re.DOTALL
)
FRONT_PAGE = re.compile(
    r"(<!-- (?P<table>systems|families):begin -->\n)(?P<body>.*?)(<!-- \w+:end -->)", re.DOTALL
)
FRONT_PAGE_BLOCKS = {"systems": systems_block, "families": families_block}
ROWS = re.compile(r"(<!-- rows:begin -->\n)(?P<body>.*?)(<!-- rows:end -->)", re.DOTALL)


def shape_text(shape):
    return " ".join(f"{name}={value}" for name, value in shape.items())


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def error_text(result):
    """Error against float64 on normal data, and cuDNN's in brackets."""
    found = result.get("errors", {}).get("normal", {})
    ours, cudnn = found.get("tessera"), found.get("cudnn")
    return None if ours is None else f"{ours:.1e}" + (f" ({cudnn:.1e})" if cudnn else "")


HIGH_TFLOPS = 100  # from here on the tensor cores are the limit, and TFLOPS are worth a column


def optional_columns(results):
    """{name: function from a result to its text} of the columns that are not empty."""
    columns = {
        "TB/s": lambda r: number(r["tbs"], 2),
        "% of floor": lambda r: number(r["percent_of_floor"], 1),
        "mJ": lambda r: number(None if r.get("joules") is None else r["joules"] * 1e3, 3),
        "host us": lambda r: number(r.get("host_us"), 2),
        "error (cuDNN's)": lambda r: error_text(r) or "-",
    }
    if any((r.get("tflops") or 0) >= HIGH_TFLOPS for r in results):
        columns = {"TFLOPS": lambda r: number(r.get("tflops"), 0)} | columns
    return {name: text for name, text in columns.items() if any(text(r) != "-" for r in results)}


def results_table(results):
    """One line per result; a column for each peer in any of them, and the ratio to the best."""
    peers = sorted({name for result in results for name in result.get("peers", {})})
    optional = optional_columns(results)
    head = ["row", "shape", "us (p10-p90)", *optional]
    head += [f"{name} us" for name in peers] + (["best peer / ours"] if peers else [])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        timed = result.get("peers", {})
        cells = [
            f"`{result['row']}`",
            shape_text(result["shape"]),
            f"{result['us']:.2f} ({result['p10']:.2f}-{result['p90']:.2f})",
        ]
        cells += [text(result) for text in optional.values()]
        cells += [number(timed.get(name, {}).get("us"), 2) for name in peers]
        if peers:
            cells.append(number(min((p["ratio"] for p in timed.values()), default=None), 2))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def provenance(data):
    ceilings = data["ceilings"]
    text = f"{data['gpu']}, driver {data['driver']}, CUDA {data['cuda']}, "
    if data.get("torch"):
        text += f"PyTorch {data['torch']}, "
    if data.get("cudnn"):
        text += f"cuDNN {data['cudnn']}, "
    text += f"commit `{data['commit']}`, {data['date']}"
    if ceilings["read_tbs"] is None:
        return text + ".\n"
    return text + (
        f"; ceilings of the run: read {number(ceilings['read_tbs'], 2)} TB/s, "
        f"copy {number(ceilings['copy_tbs'], 2)} TB/s, "
        f"bf16 {number(ceilings.get('bf16_tflops'), 0)} TFLOPS.\n"
    )


def results_block(root, file, workload):
    path = root / "docs" / "results" / f"{file}.json"
    if not path.exists():
        raise SystemExit(f"render_results: {path} does not exist")
    data = json.loads(path.read_text())
    results = [r for r in data["results"] if workload in (None, r["workload"])]
    if not results:
        raise SystemExit(f"render_results: {path} has no results of workload {workload}")
    return provenance(data) + "\n" + results_table(results)


def e2e_block(root, folder):
    """Whole models: one line per shape, and the machine and commit of each record."""
    paths = sorted((root / "docs" / "results" / folder).glob("e2e*.json"))
    if not paths:
        raise SystemExit(f"render_results: docs/results/{folder} has no e2e*.json")
    head = ["model", "weights", "batch", "prompt + generate", "prefill tok/s", "decode tok/s",
            "step ms (p10-p90)", "empty KV rows", "peak memory"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    runs = []
    for path in paths:
        data = json.loads(path.read_text())
        runs.append(f"{data['cpu']}, {data['threads']} threads, {data['simd']}, "
                    f"commit `{data['commit']}`")
        for result in data["results"]:
            shape, memory, step = result["shape"], result["memory"], result.get("step_ms")
            lines.append("| " + " | ".join([
                data["model"],
                data["dtype"] if data["weights"] == "plain" else data["weights"],
                str(shape["batch"]),
                f"{shape['prompt']} + {shape['generate']}",
                number(result["prefill_tokens_per_second"], 0),
                number(result.get("decode_tokens_per_second"), 0),
                f"{step['median']:.2f} ({step['p10']:.2f}-{step['p90']:.2f})" if step else "-",
                f"{memory['kv_waste'] * 100:.1f} %",
                f"{memory['peak_resident_bytes'] / 1e6:.0f} MB",
            ]) + " |")
    return "; ".join(dict.fromkeys(runs)) + ".\n\n" + "\n".join(lines) + "\n"


def perplexity_block(root):
    """One line per KV format, one column per machine, and what was run on each."""
    found, runs = {}, []
    for path in sorted((root / "docs" / "results").glob("*/perplexity_*.json")):
        data = json.loads(path.read_text())
        found.setdefault(data["kv"], {})[path.parent.name] = data
        runs.append(f"{path.parent.name}: {data['device']}, {data['model']} in {data['dtype']}, "
                    f"{data['text']}, {data['tokens']} tokens in {data['windows']} windows of "
                    f"{data['window']}, commit `{data['commit']}`")
    folders = sorted({folder for by_folder in found.values() for folder in by_folder})
    head = ["format", *(f"{folder} {name}" for folder in folders for name in ("perplexity", "nll"))]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for kv in sorted(found, key=lambda kv: found[kv].get("cpu", {}).get("ppl", 0)):
        cells = [f"`{kv}`"]
        for folder in folders:
            data = found[kv].get(folder, {})
            cells += [number(data.get("ppl"), 4), number(data.get("nll"), 6)]
        lines.append("| " + " | ".join(cells) + " |")
    return "; ".join(dict.fromkeys(runs)) + ".\n\n" + "\n".join(lines) + "\n"


def rows_block(binary, family):
    command = [binary, "bench", family, "--list", "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def render(root, page, binary):
    """The text of the page with every block up to date."""
    text = page.read_text()

    def with_results(match):
        return match[1] + results_block(root, match["file"], match["workload"]) + match[5]

    text = RESULTS.sub(with_results, text)
    text = E2E.sub(lambda match: match[1] + e2e_block(root, match["folder"]) + match[4], text)
    text = PERPLEXITY.sub(lambda match: match[1] + perplexity_block(root) + match[3], text)
    text = FRONT_PAGE.sub(
        lambda match: match[1] + FRONT_PAGE_BLOCKS[match["table"]](root) + match[4], text)
    if binary and page.parent.name == "kernels":
        text = ROWS.sub(lambda m: m[1] + rows_block(binary, page.stem) + m[3], text)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report what differs")
    parser.add_argument("--rows", metavar="BINARY", help="the tessera binary, to write row tables")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args()
    pages = sorted(options.root.glob("docs/**/*.md")) + sorted(options.root.glob("*.md"))
    stale = []
    for page in pages:
        text = render(options.root, page, options.rows)
        if text == page.read_text():
            continue
        stale.append(page)
        if not options.check:
            page.write_text(text)
    for page in stale:
        advice = "out of date; run tools/render_results.py" if options.check else "written"
        print(f"{page}: {advice}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
