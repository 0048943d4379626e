"""Measures what each quantiser costs in perplexity, and writes one JSON file.

Usage: tools/measure_quality.py TESSERA_BINARY OUT.json [--text FILE] [--limit WINDOWS]
       tools/measure_quality.py --render OUT.json     writes the table of docs/quantising.md

Quantises the bundled model by every method with `tessera quantize`, and measures each result with
its --evaluate: the files are read back, codes are dequantised to float, inputs are rounded to codes
where the method asks for it. The text is enwiki_val.txt in ../shared/data/text beside the checkout,
unless --text names another; without it nothing is measured. `loss` is perplexity above that of the
original, `of_rtn` the share of round to nearest's loss for the same codes.
"""
# SPDX-License-Identifier: MIT

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from source_files import REPOSITORY

LENGTH = 1024  # the longest context the model was trained on
MODEL = REPOSITORY / "models" / "tessera-13m"
TEXT = REPOSITORY.parent / "shared" / "data" / "text" / "enwiki_val.txt"
# Name, flags, and the name of what its loss is compared with.
CASES = (
    ("int4 g128 rtn", ["--method", "rtn"], None),
    ("int4 g128 gptq", ["--method", "gptq"], "int4 g128 rtn"),
    ("int4 g128 awq", ["--method", "awq"], "int4 g128 rtn"),
    ("int8 rtn", ["--method", "rtn", "--weights", "int8"], None),
    ("int8, int8 inputs", ["--method", "rtn", "--weights", "int8", "--activations", "dynamic"],
     None),
    ("int8, int8 inputs, smoothquant", ["--method", "smoothquant", "--weights", "int8"],
     "int8, int8 inputs"),
    ("fp8 rtn", ["--method", "rtn", "--weights", "fp8"], None),
    ("fp8, fp8 inputs", ["--method", "rtn", "--weights", "fp8", "--activations", "dynamic"], None),
    ("fp8_block rtn", ["--method", "rtn", "--weights", "fp8_block"], None),
)


def measure(binary, flags, text, limit, folder):
    command = [binary, "quantize", MODEL, folder, *flags, "--length", LENGTH, "--evaluate", text,
               "--limit", limit, "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout)


def render(path):
    """Puts the table of a result between the marks of docs/quantising.md."""
    result = json.loads(path.read_text())
    lines = [f"First {result['tokens']:,} tokens of `{result['text']}`; perplexity of the original "
             f"in f32: {result['ppl']:.4f}. {result['cpu']}, commit `{result['commit']}`.", "",
             "| weights | flags | MB | perplexity | loss | of round to nearest's |",
             "|---|---|---|---|---|---|"]
    for row in result["rows"]:
        share = f"{100 * row['of_rtn']:.0f} %" if "of_rtn" in row else ""
        lines.append(f"| {row['name']} | `{row['flags']}` | {row['bytes'] / 1e6:.1f} | "
                     f"{row['ppl']:.4f} | {row['loss']:+.4f} | {share} |")
    page = REPOSITORY / "docs" / "quantising.md"
    text = page.read_text()
    begin, end = "<!-- quality:begin -->\n", "<!-- quality:end -->"
    before, rest = text.split(begin)
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def main():
    if sys.argv[1:2] == ["--render"]:
        render(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--limit", type=int, default=0)
    options = parser.parse_args()
    if not options.text.exists():
        print(f"measure_quality: {options.text} is not there; nothing is measured")
        return
    rows, losses = [], {}
    for name, flags, against in CASES:
        with tempfile.TemporaryDirectory() as folder:
            answer = measure(options.binary, flags, options.text, options.limit,
                             Path(folder) / "out")
        figures = answer["evaluate"]
        losses[name] = figures["ppl_after"] - figures["ppl_before"]
        row = {"name": name, "flags": " ".join(flags), "bytes": answer["bytes_after"],
               "seconds": answer["seconds"], "ppl": round(figures["ppl_after"], 4),
               "loss": round(losses[name], 4)}
        if against:
            row["of_rtn"] = round(losses[name] / losses[against], 3)
        rows.append(row)
        print(row, flush=True)
    result = {"model": "tessera-13m", "text": options.text.name, "tokens": figures["tokens"],
              "ppl": round(figures["ppl_before"], 4), "dtype": "f32", "cpu": answer["cpu"],
              "commit": answer["commit"], "date": answer["date"], "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
