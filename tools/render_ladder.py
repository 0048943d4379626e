#!/usr/bin/env python3
# Writes the ladders' tables, plots and header lines from their results, or checks them.
# SPDX-License-Identifier: MIT
"""For each ladder (gemm and attention), reads docs/results/h200/NAME_ladder.json (written by the
ladder's program with --time --json) and NAME_ladder_ncu.json (by tools/ladder_ncu.sh), and writes:

    ladder/NAME/README.md              the tables between <!-- ladder:begin --> and its end
    ladder/NAME/NN_*.cu, .cpp          the lines "// Measured" and "// Profiled" of the header
    docs/results/h200/NAME_ladder.svg  per cent of the vendor's product, one bar per step

render_ladder.py             writes them
render_ladder.py --check     writes nothing; exit status 1 if one is out of date
render_ladder.py --metrics   the metrics to ask ncu for
render_ladder.py --gather DIR --size N --json FILE    merges ncu's NN_*.csv of DIR into FILE
"""

import argparse
import csv
import json
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("ladder")
RESULTS = Path("docs/results/h200")
TABLE = re.compile(r"(<!-- ladder:begin -->\n)(?P<body>.*?)(<!-- ladder:end -->)", re.DOTALL)
MEASURED = re.compile(r"^// Measured   .*$", re.MULTILINE)
PROFILED = re.compile(r"^// Profiled   .*$", re.MULTILINE)
PREDICTED = re.compile(r"^// Predicted  (.+? [mu]s):", re.MULTILINE)
SHOWN_BY = re.compile(r"^// Shown by   (\S+)$", re.MULTILINE)

TIME = "gpu__time_duration.sum"
SECTORS = "lts__t_sectors_op_read.sum"
# Metrics, and the column of the README's second table that shows each; None: no column.
METRICS = {
    TIME: None,
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": None,
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FMA pipe",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor pipe",
    "smsp__inst_executed_pipe_lsu.sum": "LSU instructions",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "sectors per load",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "bank conflicts",
    SECTORS: "L2 reads",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "HBM",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
    "launch__registers_per_thread": "registers",
}
SECTOR_BYTES = 32


class Gemm:
    name = "gemm"                  # its folder in ladder/
    percent = "percent_of_cublas"  # the key of a result that holds its percentage
    of_what = "of cuBLAS"          # what the percentage refers to
    columns = ("type", "us", "TFLOPS", "% of cuBLAS", "times the step before")

    @staticmethod
    def title(times):
        return f"GEMM ladder, {times['size']} cubed"

    @staticmethod
    def shape_and_peer(times):
        peers = ", ".join(f"{dtype} {peer['tflops']:.1f} TFLOPS"
                          for dtype, peer in times["cublas"].items())
        return (f"m = n = k = {times['size']}; cuBLASLt in the same run: "
                f"{peers or 'not present'}")

    @staticmethod
    def measured(result, times):
        text = f"{time_text(result['us'])} us, {result['tflops']:.2f} TFLOPS"
        if result["percent_of_cublas"] is not None:
            text += f", {percent_text(result['percent_of_cublas'])} % of cuBLAS"
        return f"{text} ({times['gpu']}, {times['size']} cubed)"

    @staticmethod
    def first_cell(_path, result):
        return result["dtype"] if result else "-"

    @staticmethod
    def last_cells(_result):
        return []


class Attention:
    name = "attention"
    percent = "percent_of_product"
    of_what = "of a product"
    columns = ("predicted", "us", "TFLOPS", "% of a product", "times the step before",
               "causal us", "causal TFLOPS")

    @staticmethod
    def title(times):
        return f"Attention ladder, {Attention.shape(times)}"

    @staticmethod
    def shape(times):
        return f"batch {times['batch']}, {times['size']} tokens, {times['heads']} heads of 128"

    @staticmethod
    def shape_and_peer(times):
        rate = times["product_tflops"]
        rate = "not present" if rate is None else f"{rate:.1f} TFLOPS"
        return (f"{Attention.shape(times)}, bf16; a large product by cuBLASLt in the same run: "
                f"{rate}")

    @staticmethod
    def measured(result, times):
        causal = result["causal"]
        return (f"{time_text(result['us'])} us, {result['tflops']:.2f} TFLOPS; causal "
                f"{time_text(causal['us'])} us, {causal['tflops']:.2f} TFLOPS ({times['gpu']})")

    @staticmethod
    def first_cell(path, _result):
        predicted = PREDICTED.search(path.read_text())
        return predicted[1] if predicted else "-"

    @staticmethod
    def last_cells(result):
        return [time_text(result["causal"]["us"]), f"{result['causal']['tflops']:.2f}"]


LADDERS = (Gemm, Attention)


def step_files(root, ladder):
    """{step: its file}, in order."""
    folder = root / FOLDER / ladder.name
    found = [p for p in folder.glob("[0-9][0-9]_*") if p.suffix in (".cu", ".cpp")]
    return {path.stem: path for path in sorted(found)}


def lesson_of(path):
    """The first line of a step's file says what it adds."""
    return path.read_text().splitlines()[0].removeprefix("// ").rstrip(".")


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else None


def time_text(us):
    return f"{us:.0f}" if us >= 1000 else f"{us:.1f}"


def percent_text(value):
    return "-" if value is None else f"{value:.1f}"


def metric_text(metric, value):
    """The value with its unit, short enough for a table cell."""
    if value is None:
        return "-"
    if metric == SECTORS:
        return f"{value * SECTOR_BYTES / 1e9:.2f} GB"
    if ".pct" in metric:
        return f"{value:.1f} %"
    if metric == TIME:
        return f"{value / 1e3:.1f} us"
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value:.4g}"


def measured_line(ladder, name, times):
    result = next((r for r in (times or {"steps": []})["steps"] if r["step"] == name), None)
    return "not measured yet" if result is None else ladder.measured(result, times)


def profiled_line(name, before, metric, profile):
    steps = (profile or {"steps": {}})["steps"]
    if metric is None or name not in steps:
        return "not profiled yet"
    text = metric_text(metric, steps[name].get(metric))
    if before in steps:
        text += f"; step {before[:2]}: {metric_text(metric, steps[before].get(metric))}"
    return text


def with_figures(ladder, path, before, times, profile):
    """The text of a step's file with its Measured and Profiled lines updated."""
    text = path.read_text()
    shown_by = SHOWN_BY.search(text)
    metric = shown_by[1] if shown_by else None
    measured = "// Measured   " + measured_line(ladder, path.stem, times)
    profiled = "// Profiled   " + profiled_line(path.stem, before, metric, profile)
    return PROFILED.sub(lambda _: profiled, MEASURED.sub(lambda _: measured, text))


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def time_table(ladder, files, times):
    results = {r["step"]: r for r in (times or {"steps": []})["steps"]}
    rows, before = [], None
    for name, path in files.items():
        result = results.get(name)
        is_next = before and result and before["dtype"] == result["dtype"]
        gain = before["us"] / result["us"] if is_next else None
        cells = [f"[`{name}`]({path.name})", lesson_of(path), ladder.first_cell(path, result)]
        if result is None:
            cells += ["not measured yet"] + ["-"] * (len(ladder.columns) - 2)
        else:
            cells += [time_text(result["us"]), f"{result['tflops']:.2f}",
                      percent_text(result[ladder.percent]),
                      "-" if gain is None else f"{gain:.2f}", *ladder.last_cells(result)]
        before = result
        rows.append(cells)
    return markdown(["step", "what it adds", *ladder.columns], rows)


def profile_table(files, profile):
    shown = {metric: column for metric, column in METRICS.items() if column}
    rows = []
    for name in files:
        values = profile["steps"].get(name)
        if values is not None:
            rows.append([f"`{name}`"] + [metric_text(m, values.get(m)) for m in shown])
    return markdown(["step", *shown.values()], rows)


def readme_block(ladder, files, times, profile):
    parts = []
    if times:
        parts.append(f"{times['gpu']}, driver {times['driver']}, CUDA {times['cuda']}, commit "
                     f"`{times['commit']}`, {times['date']}; "
                     f"{ladder.shape_and_peer(times)}.\n\n")
    parts.append(time_table(ladder, files, times))
    if times:
        parts.append(f"\n![per cent {ladder.of_what}](../../{RESULTS}/{ladder.name}_ladder.svg)\n")
    if profile:
        parts.append(f"\nBy ncu, each step once, commit `{profile['commit']}`:\n\n")
        parts.append(profile_table(files, profile))
    return "".join(parts)


def draw(ladder, times):
    """One bar per step, in per cent, coloured by element type."""
    left, width, bar, top = 170, 560, 22, 58
    colour = {"f32": "#718096", "bf16": "#2b6cb0"}
    results = times["steps"]
    bottom = top + bar * len(results)
    most = max([105.0] + [r[ladder.percent] or 0 for r in results])
    parts = []
    for percent in (0, 25, 50, 75, 100):
        x = left + width * percent / most
        parts.append(f'<line x1="{x:.1f}" y1="{top - 6}" x2="{x:.1f}" y2="{bottom}" '
                     f'stroke="{"#1a202c" if percent == 100 else "#e2e8f0"}"/>'
                     f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" class="small">'
                     f"{percent} %</text>")
    for i, result in enumerate(results):
        percent = result[ladder.percent] or 0
        y, length = top + bar * i, max(1.0, width * percent / most)
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">'
                     f"{escape(result['step'])}</text>"
                     f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{bar - 5}" '
                     f'fill="{colour[result["dtype"]]}"/>'
                     f'<text x="{left + length + 5:.1f}" y="{y + 14}" class="small">'
                     f"{percent:.1f} %, {result['tflops']:.4g} TFLOPS</text>")
    for i, dtype in enumerate(d for d in colour if any(r["dtype"] == d for r in results)):
        x = left + 90 * i
        parts.append(f'<rect x="{x}" y="38" width="10" height="10" fill="{colour[dtype]}"/>'
                     f'<text x="{x + 14}" y="47" class="small">{dtype}</text>')
    total, height = left + width + 150, bottom + 24
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" '
        f'viewBox="0 0 {total} {height}">',
        "<style>text{font:12px sans-serif;fill:#1a202c}.small{font-size:10px}"
        ".title{font-size:15px;font-weight:bold}</style>",
        f'<rect width="{total}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="18" class="title">{escape(ladder.title(times))}</text>',
        f'<text x="8" y="32" class="small">per cent {ladder.of_what} in the same type; '
        f"{escape(times['gpu'])}, commit {escape(times['commit'])}, {escape(times['date'])}</text>",
        *parts,
        "</svg>\n",
    ])


def render(root, ladder):
    """Path to the text it should have, for everything that comes from results."""
    readme = root / FOLDER / ladder.name / "README.md"
    if not readme.exists():
        return {}
    times = read_json(root / RESULTS / f"{ladder.name}_ladder.json")
    profile = read_json(root / RESULTS / f"{ladder.name}_ladder_ncu.json")
    files = step_files(root, ladder)
    wanted, before = {}, None
    for name, path in files.items():
        wanted[path] = with_figures(ladder, path, before, times, profile)
        before = name
    block = readme_block(ladder, files, times, profile)
    wanted[readme] = TABLE.sub(lambda m: m[1] + block + m[3], readme.read_text())
    if times:
        wanted[root / RESULTS / f"{ladder.name}_ladder.svg"] = draw(ladder, times)
    return wanted


def number_of(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None  # ncu's way to say that a metric was not collected


def gather_csv(path):
    """The metrics of the longest kernel in one of ncu's files."""
    lines = [line for line in path.read_text().splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(lines):
        kernels.setdefault(row["ID"], {})[row["Metric Name"]] = number_of(row["Metric Value"])
    if not kernels:
        raise SystemExit(f"render_ladder: {path} has no metrics")
    longest = max(kernels.values(), key=lambda metrics: metrics.get(TIME) or 0)
    return {metric: longest.get(metric) for metric in METRICS}


def gather(folder, size, commit):
    paths = sorted(folder.glob("[0-9][0-9]_*.csv"))
    if not paths:
        raise SystemExit(f"render_ladder: {folder} has no NN_*.csv")
    return {"commit": commit, "size": size,
            "steps": {path.stem: gather_csv(path) for path in paths}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, report what differs")
    parser.add_argument("--metrics", action="store_true", help="print what to ask ncu for")
    parser.add_argument("--gather", type=Path, metavar="DIR", help="read ncu's CSV files")
    parser.add_argument("--size", type=int, default=4096, help="the size that was profiled")
    parser.add_argument("--commit", default="unknown", help="of the binary that was profiled")
    parser.add_argument("--json", type=Path, help="where --gather writes")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository")
    options = parser.parse_args()
    if options.metrics:
        print(",".join(METRICS))
        return 0
    if options.gather:
        found = gather(options.gather, options.size, options.commit)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    stale = 0
    wanted = [item for ladder in LADDERS for item in render(options.root, ladder).items()]
    for path, text in wanted:
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if not options.check:
            path.write_text(text)
        advice = "out of date; run tools/render_ladder.py" if options.check else "written"
        print(f"{path}: {advice}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
