#!/usr/bin/env python3
# Draws the results of record as SVG, using only the standard library.
# SPDX-License-Identifier: MIT
"""plot_results.py docs/results/h200/elementwise.json [--out FOLDER]

One file per workload, FAMILY_WORKLOAD.svg: for each shape, one bar for our kernel and one for each
peer, in per cent of the floor (the least time that the problem can take at the measured bandwidth).
"""

import argparse
import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

COLOURS = ["#2b6cb0", "#a0aec0", "#d69e2e", "#805ad5", "#dd6b20", "#319795"]
LEFT, WIDTH, RIGHT, BAR, GAP, TOP = 380, 520, 70, 13, 12, 64


def bars_of(result):
    """(name, microseconds, per cent of the floor), ours first."""
    floor_us = result["us"] * result["percent_of_floor"] / 100
    bars = [("tessera", result["us"], result["percent_of_floor"])]
    for name, peer in sorted(result.get("peers", {}).items()):
        bars.append((name, peer["us"], 100 * floor_us / peer["us"] if peer["us"] else 0))
    return bars


def label_of(result):
    shape = " ".join(f"{name}={value}" for name, value in result["shape"].items())
    return f"{result['dtype']} {shape}"


def draw(title, subtitle, results):
    names = ["tessera"]
    for result in results:
        names += [n for n in sorted(result.get("peers", {})) if n not in names]
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    parts, y = [], TOP
    for result in results:
        bars = bars_of(result)
        middle = y + BAR * len(bars) / 2 + 4
        parts.append(
            f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end">'
            f"{escape(label_of(result))}</text>"
        )
        for name, us, percent in bars:
            width = max(1.0, WIDTH * min(percent, 110) / 110)
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 1}" '
                f'fill="{colour[name]}"/>'
                f'<text x="{LEFT + width + 4:.1f}" y="{y + BAR - 3}" class="small">'
                f"{percent:.0f} %, {us:.4g} us</text>"
            )
            y += BAR
        y += GAP
    height = y + 24
    lines = []
    for percent in (0, 25, 50, 75, 100):
        x = LEFT + WIDTH * percent / 110
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{y}" stroke="#e2e8f0"/>'
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle" class="small">{percent} %</text>'
        )
    legend = []
    for i, name in enumerate(names):
        x = LEFT + 130 * i
        legend.append(
            f'<rect x="{x}" y="40" width="10" height="10" fill="{colour[name]}"/>'
            f'<text x="{x + 14}" y="49" class="small">{escape(name)}</text>'
        )
    total = LEFT + WIDTH + RIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height:.0f}" '
            f'viewBox="0 0 {total} {height:.0f}">',
            "<style>text{font:12px sans-serif;fill:#1a202c}.small{font-size:10px}"
            ".title{font-size:15px;font-weight:bold}</style>",
            f'<rect width="{total}" height="{height:.0f}" fill="#ffffff"/>',
            f'<text x="8" y="18" class="title">{escape(title)}</text>',
            f'<text x="8" y="33" class="small">{escape(subtitle)}</text>',
            *legend,
            *lines,
            *parts,
            "</svg>\n",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="JSON written by tessera bench")
    parser.add_argument("--out", type=Path, help="folder for the SVG files; else beside the JSON")
    options = parser.parse_args()
    for path in options.files:
        data = json.loads(path.read_text())
        folder = options.out or path.parent
        folder.mkdir(parents=True, exist_ok=True)
        for workload in dict.fromkeys(result["workload"] for result in data["results"]):
            results = [r for r in data["results"] if r["workload"] == workload]
            subtitle = (
                f"per cent of the floor; {data['gpu']}, commit {data['commit']}, {data['date']}"
            )
            target = folder / f"{path.stem}_{workload.replace('/', '_')}.svg"
            target.write_text(draw(f"{path.stem}: {workload}", subtitle, results))
            print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
