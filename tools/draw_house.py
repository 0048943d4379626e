#!/usr/bin/env python3
# Draws the picture of docs/architecture.md: the layers, and the life of one request.
# SPDX-License-Identifier: MIT
"""draw_house.py             writes docs/pictures/house.svg and house_dark.svg
draw_house.py --check     writes nothing; exit status 1 where a picture is out of date or a folder
                          of src/ is missing from it
"""

import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT = 900, 688

THEMES = {
    "house.svg": {
        "text": "#1f2328", "quiet": "#59636e", "line": "#818b98",
        "edge": ("#54aeff", "#4ac26b", "#d4a72c", "#ff8182", "#c297ff", "#afb8c1"),
        "fill": ("#ddf4ff", "#dafbe1", "#fff8c5", "#ffebe9", "#fbefff", "#f6f8fa"),
    },
    "house_dark.svg": {
        "text": "#e6edf3", "quiet": "#9198a1", "line": "#656c76",
        "edge": ("#1f6feb", "#238636", "#9e6a03", "#da3633", "#8957e5", "#3d444d"),
        "fill": ("#0c2d6b", "#033a16", "#341a00", "#490202", "#271052", "#151b23"),
    },
}
OUTSIDE, ENGINE, MODEL, OPS, KERNELS, CORE = range(6)  # colours

# Each box: name, lines of text, left edge, top edge, width, height, colour. A box uses the boxes
# that are below it. Every folder of src/ must have a box (check_folders).
BOXES = (
    ("apps", ["the tessera program, a verb a task"], 8, 8, 270, 30, OUTSIDE),
    ("server", ["the OpenAI API over HTTP"], 8, 46, 270, 30, OUTSIDE),
    ("python", ["on PyTorch, NumPy, CuPy and JAX tensors"], 286, 8, 322, 30, OUTSIDE),
    ("c_api", ["the C ABI over DLPack tensors"], 286, 46, 322, 30, OUTSIDE),
    ("bench", ["problems, shared by tests and", "the timing harness"], 616, 8, 276, 68, OUTSIDE),
    ("engine", ["requests become batches, batches become tokens: Scheduler, Runner, Sampler, "
                "RequestTable"], 8, 90, 884, 44, ENGINE),
    ("model", ["layers (Linear, Norm, Attention, Mlp) that own their",
               "weights; one short file per family; checkpoints"], 8, 148, 420, 68, MODEL),
    ("dist", ["what the ranks of a", "model exchange"], 436, 148, 172, 68, MODEL),
    ("ops", ["operations as functions: check, choose a row (one compiled kernel), launch"],
     8, 230, 600, 44, OPS),
    ("kernels", ["gemm: portable, sm90, cublaslt, 2:4 sparse", "attention: prefill, decode, merge",
                 "kv: append, gather, copy of pages", "elementwise: norm, rope, softmax, quantise"],
     8, 288, 332, 96, KERNELS),
    ("cpu", ["every operation with SIMD:", "the fallback, and the oracle", "of every test"],
     348, 288, 260, 142, KERNELS),
    ("tile", ["PTX instructions, pipelines, swizzles"], 8, 392, 332, 38, KERNELS),
    ("cache", ["which page of the", "KV cache belongs", "to which sequence;", "prefix index"],
     616, 148, 134, 282, MODEL),
    ("text", ["prompt to tokens,", "tokens to text:", "tokenizer, chat", "templates, streaming"],
     758, 148, 134, 282, ENGINE),
    ("core", ["element types, tensors, devices, context, errors, threads"], 8, 444, 884, 44, CORE),
)
# Name and text on one line.
INLINE = {"apps", "server", "python", "c_api", "engine", "ops", "tile", "core"}

# The life of a request, in order: who does what.
STEPS = (
    ("text", "prompt to\ntokens", ENGINE),
    ("Scheduler", "plans a step:\nsequences\nand pages", ENGINE),
    ("Runner", "brings the\nbatch to the\ndevice", ENGINE),
    ("model", "forward pass,\nlayer by layer", MODEL),
    ("ops", "rows chosen,\nkernels\nlaunched", OPS),
    ("Sampler", "logits to\ntokens", ENGINE),
    ("RequestTable", "commits, ends\nwhat is done", ENGINE),
    ("text", "tokens to text,\nstreamed", ENGINE),
)


def box(theme, left, top, width, height, colour):
    return (f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" '
            f'fill="{theme["fill"][colour]}" stroke="{theme["edge"][colour]}"/>')


def draw_boxes(theme):
    parts = []
    for name, lines, left, top, width, height, colour in BOXES:
        parts.append(box(theme, left, top, width, height, colour))
        if name in INLINE:
            middle = top + height / 2 + 4.5
            parts.append(f'<text x="{left + 12}" y="{middle}"><tspan class="name">{name}</tspan>'
                         f'<tspan class="note" dx="10">{escape(lines[0])}</tspan></text>')
            continue
        first = top + height / 2 - 7.5 * len(lines) + 2
        parts.append(f'<text class="name" x="{left + 12}" y="{first}">{name}</text>')
        parts += [f'<text class="note" x="{left + 12}" y="{first + 17 + 15 * i}">{escape(line)}'
                  "</text>" for i, line in enumerate(lines)]
    return parts


def draw_steps(theme, top):
    """A chain of boxes from the request to the stream, and the way back for the next token."""
    width, gap, height = 98, 14.3, 84
    parts = [f'<text class="name" x="8" y="{top}">One request</text>']
    top += 24
    middle = top + height / 2
    for i, (name, what, colour) in enumerate(STEPS):
        left = 8 + i * (width + gap)
        parts.append(box(theme, left, top, width, height, colour))
        parts.append(f'<text class="name" x="{left + 8:.1f}" y="{top + 22}">{name}</text>')
        parts += [f'<text class="note" x="{left + 8:.1f}" y="{top + 41 + 14 * k}">{line}</text>'
                  for k, line in enumerate(escape(what).split("\n"))]
        if i + 1 < len(STEPS):
            start = left + width + 1
            parts.append(f'<path class="arrow" d="M{start:.1f} {middle}h{gap - 2.5:.1f}"/>')
    first, last = (8 + i * (width + gap) + width / 2 for i in (1, 6))
    below = top + height
    parts.append(f'<path class="arrow" d="M{last:.1f} {below}v24H{first:.1f}v-21"/>')
    parts.append(f'<text class="note" x="{(first + last) / 2:.1f}" y="{below + 41}" '
                 'text-anchor="middle">once per step, until every sequence has ended</text>')
    return parts


def draw(theme):
    style = (
        "<style>text{font:12px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
        f"fill:{theme['text']}}}.name{{font-size:13px;font-weight:600}}"
        f".note{{font-size:11.5px;fill:{theme['quiet']}}}"
        f".arrow{{fill:none;stroke:{theme['line']};stroke-width:1.5;marker-end:url(#head)}}</style>"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse">'
        f'<path d="M0 0L8 4L0 8z" fill="{theme["line"]}"/></marker></defs>'
    )
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', style, *draw_boxes(theme),
             *draw_steps(theme, 528), "</svg>"]
    return "\n".join(parts) + "\n"


def check_folders(root):
    """Folders of src/ that the picture does not show."""
    shown = {name for name, *_ in BOXES}
    folders = sorted(path.name for path in (root / "src").iterdir() if path.is_dir())
    return [f"src/{name} is missing from the picture; add it to BOXES in tools/draw_house.py"
            for name in folders if name not in shown]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report what differs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args()
    problems = check_folders(options.root)
    for name, theme in THEMES.items():
        path = options.root / "docs" / "pictures" / name
        picture = draw(theme)
        if path.exists() and path.read_text() == picture:
            continue
        if options.check:
            problems.append(f"{path}: out of date; run tools/draw_house.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture)
            print(f"{path}: written")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
