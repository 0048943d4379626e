#!/usr/bin/env python3
# Draws the picture of the front page from the results of record, with the standard library alone.
# SPDX-License-Identifier: MIT
"""Four panels: attention over a prompt (full and causal), decode attention, and matrix products.

draw_speed.py             writes docs/pictures/speed.svg and speed_dark.svg
draw_speed.py --check     writes nothing; exit status 1 where a picture is out of date

Ours comes from the records in docs/results/h200. cuBLAS was timed in turns with ours in the same
run. cuDNN was timed twice, in turns with ours and by itself (peers.json), and is shown at the
better of the two. FlashAttention-3 was timed by itself only, so its line is dashed.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent

WIDTH, HEIGHT = 900, 668
PANEL_WIDTH, PANEL_HEIGHT = 262, 180  # of the area between the axes
COLUMNS, LINES = (36, 496), (60, 370)  # left edge and top edge of that area
LABEL_GAP = 15  # between the labels at the ends of lines

THEMES = {
    "speed.svg": {
        "text": "#1f2328", "quiet": "#59636e", "grid": "#d8dee4",
        "tessera": "#0969da", "fa3": "#bc4c00", "library": "#818b98",
    },
    "speed_dark.svg": {
        "text": "#e6edf3", "quiet": "#9198a1", "grid": "#30363d",
        "tessera": "#58a6ff", "fa3": "#f0883e", "library": "#8b949e",
    },
}


class Records:
    """The results of record, found by problem and shape."""

    def __init__(self, root):
        self.folder = root / "docs" / "results" / "h200"
        self.peers = {}
        for entry in self.load("peers")["kernels"]:
            self.peers[entry["problem"], entry["peer"], self.key(entry["shape"])] = entry

    def load(self, name):
        return json.loads((self.folder / f"{name}.json").read_text())

    @staticmethod
    def key(shape):
        return tuple(sorted(shape.items()))

    def times(self, problem, result):
        """{system: microseconds} of one result; cuDNN at the better of its two runs."""
        found = {"tessera": result["us"]}
        for peer in ("cudnn", "fa3"):
            alone = self.peers.get((problem, peer, self.key(result["shape"])))
            turns = result["peers"].get(peer)
            runs = [run["us"] for run in (alone, turns) if run]
            if runs:
                found[peer] = min(runs)
        return found


def ratios_text(all_times, peer, name):
    """How our speed compares over all shapes: "1.12 x cuDNN (worst 0.98 x)"."""
    ratios = [times[peer] / times["tessera"] for times in all_times if peer in times]
    return f"{median(ratios):.2f}\u00d7 {name} (worst {min(ratios):.2f}\u00d7)"


def attention_panel(records, causal):
    chosen = ("prefill/d64", "prefill/d128", "prefill/d256", "prefill/llama8b")
    results = [r for r in records.load("attention")["results"]
               if r["workload"] in chosen and r["shape"].get("causal", 0) == causal]
    all_times = [records.times("prefill", r) for r in results]
    curves = {"tessera": [], "fa3": [], "cudnn": []}
    for result, times in zip(results, all_times):
        if result["workload"] != "prefill/d128":
            continue
        flops = result["tflops"] * result["us"]
        for system, curve in curves.items():
            curve.append((result["shape"]["q_len"], flops / times[system]))
    return {
        "title": f"Attention over a prompt (prefill), {'causal' if causal else 'full'}",
        "subtitle": "TFLOPS by sequence length; bf16, 16 heads of 128, 16,384 tokens in all",
        "summary": [f"Tessera over all {len(results)} shapes (heads of 64, 128, 256), median:",
                    ratios_text(all_times, "cudnn", "cuDNN") + ", "
                    + ratios_text(all_times, "fa3", "FA3")],
        "curves": curves, "top": 800, "ticks": (0, 200, 400, 600, 800), "format": "{:.0f}",
    }


def decode_panel(records, batch=8):
    results = [r for r in records.load("decode")["results"] if r["workload"] == "decode/llama8b"]
    all_times = [records.times("decode", r) for r in results]
    curves = {"tessera": [], "fa3": [], "cudnn": []}
    for result, times in zip(results, all_times):
        if result["shape"]["batch"] != batch:
            continue
        terabytes = result["tbs"] * result["us"]
        for system, curve in curves.items():
            curve.append((result["shape"]["kv_len"], terabytes / times[system]))
    return {
        "title": "Attention of one new token (decode)",
        "subtitle": f"TB/s by cache length; bf16, {batch} sequences, 32 heads over 8 KV heads",
        "summary": [f"Tessera over all {len(results)} shapes (1 to 128 sequences), median:",
                    ratios_text(all_times, "cudnn", "cuDNN") + ", "
                    + ratios_text(all_times, "fa3", "FA3")],
        "curves": curves, "top": 5, "ticks": (0, 1, 2, 3, 4, 5), "format": "{:.2f}",
    }


def gemm_panel(records):
    by_rows = {}
    for result in records.load("gemm_linear_own")["results"]:
        peer = result["peers"].get("gemm_cublaslt_bf16")
        if peer:
            by_rows.setdefault(result["shape"]["m"], []).append(peer["ratio"])
    squares = [r["peers"]["gemm_cublaslt_bf16"]["ratio"]
               for r in records.load("gemm_square")["results"]]
    every = [ratio for ratios in by_rows.values() for ratio in ratios]
    return {
        "title": "Matrix products of Llama-3-8B",
        "subtitle": "speed over cuBLAS by number of tokens; bf16, a dot a weight matrix",
        "summary": [f"Tessera over all {len(every)} shapes, median: "
                    f"{median(every):.2f}\u00d7 cuBLAS (worst {min(every):.2f}\u00d7)",
                    "squares of 4096 to 16384: "
                    f"{min(squares):.2f}\u00d7 to {max(squares):.2f}\u00d7"],
        "curves": {"tessera": [(m, median(ratios)) for m, ratios in sorted(by_rows.items())
                               if m & (m - 1) == 0]},
        "dots": [(m, ratio) for m, ratios in by_rows.items() for ratio in ratios],
        "bottom": 0.8, "top": 1.4, "ticks": (0.8, 1.0, 1.2, 1.4), "format": "(median)",
        "reference": (1.0, "cuBLAS"), "x_ticks": (1, 4, 16, 64, 256, 1024, 4096),
    }


NAMES = {"tessera": "Tessera", "fa3": "FlashAttention-3", "cudnn": "cuDNN"}
CLASSES = {"tessera": "tessera", "fa3": "fa3", "cudnn": "library"}


def short(count):
    return f"{count // 1024}K" if count >= 1024 else str(count)


def spread(labels, top, bottom):
    """Moves labels (y, ...) apart until each has room, keeping their order."""
    labels = sorted(labels)
    placed = []
    for y, *rest in labels:
        placed.append([max(y, placed[-1][0] + LABEL_GAP) if placed else max(y, top), *rest])
    excess = placed[-1][0] - bottom
    if excess > 0:
        for label in placed:
            label[0] -= excess
    return placed


def draw_panel(panel, left, top):
    bottom_value, top_value = panel.get("bottom", 0), panel["top"]
    xs = sorted({x for curve in panel["curves"].values() for x, _ in curve})
    low, high = math.log2(xs[0]), math.log2(xs[-1])

    def place(x, y):
        return (left + 8 + (PANEL_WIDTH - 16) * (math.log2(x) - low) / (high - low),
                top + PANEL_HEIGHT * (1 - (y - bottom_value) / (top_value - bottom_value)))

    title, subtitle = escape(panel["title"]), escape(panel["subtitle"])
    parts = [f'<text class="title" x="{left - 28}" y="{top - 44}">{title}</text>',
             f'<text class="note" x="{left - 28}" y="{top - 26}">{subtitle}</text>']
    for tick in panel["ticks"]:
        _, y = place(xs[0], tick)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}h{PANEL_WIDTH}"/>'
                     f'<text class="note" x="{left - 7}" y="{y + 4:.1f}" text-anchor="end">'
                     f"{tick}</text>")
    for tick in panel.get("x_ticks", xs):
        x, _ = place(tick, bottom_value)
        parts.append(f'<text class="note" x="{x:.1f}" y="{top + PANEL_HEIGHT + 17}" '
                     f'text-anchor="middle">{short(tick)}</text>')
    for point in panel.get("dots", ()):
        x, y = place(*point)
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.4"/>')
    labels = []
    if "reference" in panel:
        value, name = panel["reference"]
        _, y = place(xs[0], value)
        parts.append(f'<path class="line library" d="M{left} {y:.1f}h{PANEL_WIDTH}"/>')
        labels.append((y, "library", name, ""))
    for system in reversed(panel["curves"]):  # ours last, so that it lies on top
        points = [place(x, y) for x, y in panel["curves"][system]]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line {CLASSES[system]}" d="{path}"/>')
        if "dots" not in panel:
            parts += [f'<circle class="fill-{CLASSES[system]}" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>'
                      for x, y in points]
        last = panel["format"].format(panel["curves"][system][-1][1])
        names = panel.get("names", NAMES)
        labels.append((points[-1][1], CLASSES[system], names[system], last))
    for y, colour, name, value in spread(labels, top + 4, top + PANEL_HEIGHT - 4):
        parts.append(f'<text class="label fill-{colour}" x="{left + PANEL_WIDTH + 6}" '
                     f'y="{y + 4:.1f}">{name} {value}</text>')
    for i, line in enumerate(panel["summary"]):
        parts.append(f'<text class="note" x="{left - 28}" '
                     f'y="{top + PANEL_HEIGHT + 38 + 15 * i}">{escape(line)}</text>')
    return parts


def style(theme):
    colours = "".join(f".{name}{{stroke:{theme[name]}}}.fill-{name}{{fill:{theme[name]}}}"
                      for name in ("tessera", "fa3", "library"))
    return (
        "<style>text{font:12px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
        f"fill:{theme['text']}}}"
        f".title{{font-size:14px;font-weight:600}}.note{{font-size:11px;fill:{theme['quiet']}}}"
        f".label{{font-weight:600}}.grid{{stroke:{theme['grid']};fill:none}}"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}.line.tessera{stroke-width:2.6}"
        f".line.fa3{{stroke-dasharray:5 3}}.dot{{fill:{theme['tessera']};opacity:.35}}"
        f"{colours}</style>"
    )


def footer(records):
    attention, decode = records.load("attention"), records.load("decode")
    gemm = records.load("gemm_linear_own")
    commits = f"{attention['commit'][:7]}, {decode['commit'][:7]}, {gemm['commit'][:7]}"
    version = str(attention["cudnn"])
    cudnn = f"{int(version[:-4])}.{int(version[-4:-2])}.{int(version[-2:])}"
    return [
        f"{attention['gpu']}, CUDA {attention['cuda']}, records of commits {commits}. Medians of "
        "CUDA-graph replays, inputs rotated past the L2 cache.",
        f"cuBLAS in turns with Tessera; cuDNN {cudnn} at the better of two runs, in turns and "
        "alone; dashed: FlashAttention-3, timed alone on another day.",
    ]


def draw(records, theme):
    panels = [attention_panel(records, 0), attention_panel(records, 1), decode_panel(records),
              gemm_panel(records)]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', style(theme)]
    for i, panel in enumerate(panels):
        parts += draw_panel(panel, COLUMNS[i % 2], LINES[i // 2])
    for i, line in enumerate(footer(records)):
        parts.append(f'<text class="note" x="{COLUMNS[0] - 28}" y="{HEIGHT - 22 + 15 * i}">'
                     f"{escape(line)}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def write_pictures(pictures, folder, is_check, tool):
    """Writes {name: text} where it differs; with is_check only says so. Returns an exit status."""
    status = 0
    for name, picture in pictures.items():
        path = folder / name
        if path.exists() and path.read_text() == picture:
            continue
        if is_check:
            print(f"{path}: out of date; run tools/{tool}")
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture)
            print(f"{path}: written")
    return status


def parse_options(description):
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report what differs")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    return parser.parse_args()


def main():
    options = parse_options(__doc__)
    records = Records(options.root)
    pictures = {name: draw(records, theme) for name, theme in THEMES.items()}
    return write_pictures(pictures, options.root / "docs" / "pictures", options.check,
                          "draw_speed.py")


if __name__ == "__main__":
    sys.exit(main())
