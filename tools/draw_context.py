#!/usr/bin/env python3
# Draws step time and memory over the length of the context, with the standard library alone.
# SPDX-License-Identifier: MIT
"""Two panels from docs/results/h200/e2e_context.json: time of a decode step, and memory.

draw_context.py             writes docs/pictures/context.svg and context_dark.svg
draw_context.py --check     writes nothing; exit status 1 where a picture is out of date

The record is made by `tessera bench e2e e2e/context --shape llama3.1-8b --json FILE`.
"""

import json
import math
import sys
from xml.sax.saxutils import escape

import draw_speed

HEIGHT = 300
TOP = 60
RECORD = "docs/results/h200/e2e_context.json"
PICTURES = {"context.svg": "speed.svg", "context_dark.svg": "speed_dark.svg"}  # and their themes
CURVES = ("tessera", "fa3", "cudnn")  # colours for the batch sizes, in ascending order


def ticks_up_to(value):
    """Four to eight round numbers from 0, the last at or above `value`."""
    step = 10 ** math.floor(math.log10(value / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if value / (step * factor) <= 8)
    count = math.ceil(value / step)
    return [round(i * step, 6) if step < 1 else int(i * step) for i in range(count + 1)]


def context_of(result):
    shape = result["shape"]
    return shape["prompt"] + shape["generate"] + 1


def step_ms(result):
    return result["step_ms"]["median"]


def memory_gb(result):
    memory = result["memory"]
    return (memory["weight_bytes"] + memory["kv_bytes"] + memory["activation_bytes"]) * 1e-9


def panel_of(results, value_of, title, subtitle, value_format):
    results = [result for result in results if "step_ms" in result]
    batches = sorted({result["shape"]["batch"] for result in results})
    if len(batches) > len(CURVES):
        raise SystemExit(f"draw_context: {RECORD} has batches {batches}; there are colours for "
                         f"{len(CURVES)}")
    curves, names = {}, {}
    for system, batch in zip(CURVES, batches):
        curves[system] = sorted((context_of(r), value_of(r)) for r in results
                                if r["shape"]["batch"] == batch)
        names[system] = f"batch {batch}:"
    ticks = ticks_up_to(max(value_of(result) for result in results))
    return {"title": title, "subtitle": subtitle, "summary": [], "curves": curves, "names": names,
            "top": ticks[-1], "ticks": ticks, "format": value_format}


def panels_of(record):
    about = f"{record['model']}, {record['dtype']}, KV cache {record['kv']}; by tokens of context"
    results = record["results"]
    return [panel_of(results, step_ms, "Time of a decode step", f"ms; {about}", "{:.2f} ms"),
            panel_of(results, memory_gb, "Memory of weights, KV cache and activations",
                     f"GB; {about}", "{:.1f} GB")]


def draw(record, theme):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{draw_speed.WIDTH}" '
             f'height="{HEIGHT}" viewBox="0 0 {draw_speed.WIDTH} {HEIGHT}" role="img">',
             draw_speed.style(theme)]
    for panel, left in zip(panels_of(record), draw_speed.COLUMNS):
        parts += draw_speed.draw_panel(panel, left, TOP)
    note = (f"{record['device'].partition(', ')[2] or record['device']}, random weights, commit "
            f"{record['commit'][:7]}. Memory grows in proportion to the tokens held.")
    parts.append(f'<text class="note" x="{draw_speed.COLUMNS[0] - 28}" y="{HEIGHT - 10}">'
                 f"{escape(note)}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    options = draw_speed.parse_options(__doc__)
    path = options.root / RECORD
    if not path.exists():
        print(f"{path}: no such record; make it with tessera bench e2e e2e/context --json")
        return 1
    record = json.loads(path.read_text())
    pictures = {name: draw(record, draw_speed.THEMES[theme]) for name, theme in PICTURES.items()}
    return draw_speed.write_pictures(pictures, options.root / "docs" / "pictures", options.check,
                                     "draw_context.py")


if __name__ == "__main__":
    sys.exit(main())
