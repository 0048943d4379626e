# SPDX-License-Identifier: MIT
"""Measures what each quantised form costs in quality, and writes one JSON file.

Usage: tools/measure_quality.py TESSERA_BINARY OUT.json --text FILE [--data FOLDER] [--device cuda]
           [--jobs N] [--limit WINDOWS] [--questions N] [--only PART] [--folder FOLDER] [--float]
       tools/measure_quality.py --render OUT.json     writes the tables of docs/quantising.md

Quantises the bundled model by every method with `tessera quantize` on the CPU, then measures each
result with `tessera perplexity` over FILE, with the KV cache in 16 bits, int8 and int4; weight-only
forms also with their weights dequantised to bf16, which must agree. With --float, forms that round
inputs are measured by `quantize --evaluate` too: in float on the CPU, inputs rounded to codes. With
--data, a folder with hellaswag_val_full.txt.bz2, arc_challenge.jsonl and mmlu.tar.xz, six forms
answer the first --questions questions of each. It needs the binary, the folder models/ and Python's
standard library. `loss` is perplexity above that of the original with the same cache, `of_rtn` the
share of round to nearest's loss for the same codes. --jobs processes run at once; --folder keeps
the quantised models and every answer, so that the same command goes on where it was stopped; --only
PART measures forms whose name contains PART.
"""
import argparse
import bz2
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MODEL = REPOSITORY / "models" / "tessera-13m"
LENGTH = 1024  # the longest context the model was trained on
ORIGINAL = "original"
KV = ("plain", "int8", "int4")
# Name, flags, and the name of what its loss is compared with.
CASES = (
    ("int8", "--method rtn --weights int8", None),
    ("int8, dynamic int8 inputs", "--method rtn --weights int8 --activations dynamic", None),
    ("int8, static int8 inputs", "--method rtn --weights int8 --activations static", None),
    ("int8, dynamic int8 inputs, smoothquant",
     "--method smoothquant --weights int8 --activations dynamic", "int8, dynamic int8 inputs"),
    ("int8, static int8 inputs, smoothquant",
     "--method smoothquant --weights int8 --activations static", "int8, static int8 inputs"),
    ("fp8", "--method rtn --weights fp8", None),
    ("fp8, dynamic fp8 inputs", "--method rtn --weights fp8 --activations dynamic", None),
    ("fp8_block", "--method rtn --weights fp8_block", None),
    ("int4 g128 rtn", "--method rtn", None),
    ("int4 g64 rtn", "--method rtn --group 64", None),
    ("int4 g32 rtn", "--method rtn --group 32", None),
    ("int4 g128 gptq, columns as they lie", "--method gptq --act-order off", "int4 g128 rtn"),
    ("int4 g128 gptq", "--method gptq", "int4 g128 rtn"),
    ("int4 g128 gptq, sorted groups", "--method gptq --act-order group", "int4 g128 rtn"),
    ("int4 g128 awq", "--method awq", "int4 g128 rtn"),
)
TASKS = ("hellaswag", "arc", "mmlu")
TASK_CASES = (ORIGINAL, "int8", "fp8", "int4 g128 rtn", "int4 g128 gptq", "int4 g128 awq")


class Runner:
    """Runs the binary, some processes at a time, and shows how far it is."""

    def __init__(self, options, folder):
        self.options = options
        self.answers = folder / "answers"
        self.answers.mkdir(parents=True, exist_ok=True)
        self.threads = max(1, (os.cpu_count() or 1) // options.jobs)
        self.start = time.monotonic()
        self.done = 0

    def json(self, *arguments):
        """What the binary answers; an answer that is kept is not asked for again."""
        command = [self.options.binary, *map(str, arguments), "--threads", str(self.threads),
                   "--json"]
        asked = " ".join(command[1:-3])
        kept = self.answers / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
        if kept.exists():
            return json.loads(kept.read_text())
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {answer.stderr}")
        self.done += 1
        print(f"{time.monotonic() - self.start:6.0f} s, {self.done} done: "
              f"{' '.join(command[1:])}", file=sys.stderr, flush=True)
        part = kept.with_suffix(".part")
        part.write_text(answer.stdout)
        part.rename(kept)
        return json.loads(answer.stdout)

    def all(self, calls):
        """Answers by name of calls {name: (after, function, arguments...)}, the first ones first.
        `after` is the name of a call that must be done before, or None."""
        left, waiting, answers = dict(calls), {}, {}
        with ThreadPoolExecutor(self.options.jobs) as pool:
            while left or waiting:
                ready = [name for name, call in left.items()
                         if call[0] is None or call[0] in answers]
                for name in ready:
                    waiting[pool.submit(*left.pop(name)[1:])] = name
                for one in wait(waiting, return_when=FIRST_COMPLETED).done:
                    name = waiting.pop(one)
                    if one.exception() is not None:
                        pool.shutdown(cancel_futures=True)
                        sys.exit(str(one.exception()))
                    answers[name] = one.result()
        return answers


def quantize(run, flags, folder):
    return run.json("quantize", MODEL, folder, *flags.split(), "--length", LENGTH, "--device",
                    "cpu")


def evaluate(run, flags, folder):
    """In float, inputs rounded: the finished folder is taken up as it is."""
    limit = ["--limit", run.options.limit] if run.options.limit else []
    answer = run.json("quantize", MODEL, folder, *flags.split(), "--length", LENGTH, "--device",
                      "cpu", "--evaluate", run.options.text, "--after-only", *limit)
    return answer["evaluate"]["ppl_after"]


def on_device(run):
    # Several processes share a GPU, so none may take all of its memory.
    return ["--device", run.options.device, "--kv-bytes", 1 << 30]


def perplexity(run, folder, kv, weights):
    limit = ["--limit", run.options.limit] if run.options.limit else []
    return run.json("perplexity", folder, "--text", run.options.text, "--kv", kv, "--weights",
                    weights, *limit, *on_device(run))


def task(run, folder, name, data):
    return run.json("eval", name, folder, "--data", data, "--limit", run.options.questions,
                    *on_device(run))


def task_data(folder, scratch):
    """The data of each task, unpacked."""
    scratch.mkdir(parents=True, exist_ok=True)
    hellaswag = scratch / "hellaswag.txt"
    hellaswag.write_bytes(bz2.decompress((folder / "hellaswag_val_full.txt.bz2").read_bytes()))
    with tarfile.open(folder / "mmlu.tar.xz") as archive:
        known = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.12
        archive.extractall(scratch, **known)
    tests = next(scratch.glob("**/test"))
    return {"hellaswag": hellaswag, "arc": folder / "arc_challenge.jsonl", "mmlu": tests.parent}


def has_inputs(flags):
    return "--activations" in flags


def measure(options, folder):
    run = Runner(options, folder)
    cases = [case for case in CASES if options.only in case[0]]
    data = task_data(options.data, folder / "tasks") if options.data else {}
    folders = {name: folder / f"model{i}" for i, (name, _, _) in enumerate(CASES)}
    calls = {}
    # The slowest first, so that none is left over at the end.
    for name, flags, _ in sorted(cases, key=lambda case: "rtn" in case[1]):
        calls[name, "made"] = (None, quantize, run, flags, folders[name])
    folders[ORIGINAL] = MODEL
    for name, flags in [(ORIGINAL, ""), *((name, flags) for name, flags, _ in cases)]:
        after = (name, "made") if flags else None
        for kv in KV:
            calls[name, kv] = (after, perplexity, run, folders[name], kv, "stored")
        if has_inputs(flags) and options.float:
            calls[name, "float"] = (after, evaluate, run, flags, folders[name])
        elif flags and not has_inputs(flags):
            calls[name, "dense"] = (after, perplexity, run, folders[name], "plain", "plain")
        if options.data and name in TASK_CASES:
            for one in TASKS:
                calls[name, one] = (after, task, run, folders[name], one, data[one])
    answers = run.all(calls)
    made = [answers[name, "made"] for name, _, _ in cases]
    return result_of(options, cases, made, answers, run)


def result_of(options, cases, made, answers, run):
    before = {kv: answers[ORIGINAL, kv]["ppl"] for kv in KV}
    rows, losses = [], {}
    for (name, flags, against), about in zip(cases, made):
        ppl = {kv: answers[name, kv]["ppl"] for kv in KV}
        row = {"name": name, "flags": flags, "bytes": about["bytes_after"],
               "seconds": about["seconds"], "ppl": {kv: round(ppl[kv], 4) for kv in KV}}
        if (name, "float") in answers:
            row["ppl_in_float"] = round(answers[name, "float"], 4)
        if (name, "dense") in answers:
            row["ppl_dequantised"] = round(answers[name, "dense"]["ppl"], 4)
        losses[name] = row.get("ppl_in_float", ppl["plain"]) - before["plain"]
        row["loss"] = round(losses[name], 4)
        if against in losses:
            row["of_rtn"] = round(losses[name] / losses[against], 3)
        rows.append(row)
    tasks = [{"name": name, "task": one, "questions": answer["questions"],
              "acc": round(answer["acc"], 4), "acc_stderr": round(answer["acc_stderr"], 4),
              "acc_norm": round(answer["acc_norm"], 4)}
             for (name, one), answer in answers.items() if one in TASKS]
    first = answers[ORIGINAL, "plain"]
    return {"model": "tessera-13m", "text": Path(options.text).name, "tokens": first["tokens"],
            "dtype": first["dtype"], "device": first["device"], "cpu": first["cpu"],
            "commit": first["commit"], "date": first["date"],
            "seconds": round(time.monotonic() - run.start),
            "ppl": {kv: round(before[kv], 4) for kv in KV}, "rows": rows, "tasks": tasks}


def quality_table(result):
    ppl = result["ppl"]
    has_floats = any("ppl_in_float" in row for row in result["rows"])
    lines = [f"{result['tokens']:,} tokens of `{result['text']}`, {result['dtype']}, "
             f"{result['device']}, commit `{result['commit']}`. Columns: 16-bit, int8 and int4 KV "
             "cache; the weights dequantised to bf16 and run" +
             ("; for 8-bit inputs, in float on the CPU" if has_floats else "") +
             "; what is lost beside the original.", "",
             "| weights | flags | MB | perplexity | KV int8 | KV int4 | "
             f"{'dequantised or in float' if has_floats else 'dequantised'} | "
             "loss | of round to nearest's |", "|---|---|---|---|---|---|---|---|---|",
             f"| original | | | {ppl['plain']:.4f} | {ppl['int8']:.4f} | {ppl['int4']:.4f} | | | |"]
    for row in result["rows"]:
        share = f"{100 * row['of_rtn']:.0f} %" if "of_rtn" in row else ""
        other = row.get("ppl_in_float", row.get("ppl_dequantised"))
        other = "" if other is None else f"{other:.4f}"
        ppl = row["ppl"]
        lines.append(f"| {row['name']} | `{row['flags']}` | {row['bytes'] / 1e6:.1f} | "
                     f"{ppl['plain']:.4f} | {ppl['int8']:.4f} | {ppl['int4']:.4f} | {other} | "
                     f"{row['loss']:+.4f} | {share} |")
    return lines


def task_table(result):
    if not result["tasks"]:
        return []
    by_name = {}
    for one in result["tasks"]:
        by_name.setdefault(one["name"], {})[one["task"]] = one
    counts = {one["task"]: one["questions"] for one in result["tasks"]}
    lines = ["", "| weights | " + " | ".join(f"{task}, first {counts[task]:,}" for task in counts)
             + " |", "|---|" + "---|" * len(counts)]
    for name, tasks in sorted(by_name.items(), key=lambda item: TASK_CASES.index(item[0])):
        cells = [f"{100 * tasks[task]['acc']:.1f} ± {100 * tasks[task]['acc_stderr']:.1f} %"
                 for task in counts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def render(path):
    """Puts the tables of a result between the marks of docs/quantising.md."""
    result = json.loads(path.read_text())
    page = REPOSITORY / "docs" / "quantising.md"
    text = page.read_text()
    begin, end = "<!-- quality:begin -->\n", "<!-- quality:end -->"
    before, rest = text.split(begin)
    lines = quality_table(result) + task_table(result)
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def main():
    if sys.argv[1:2] == ["--render"]:
        render(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("out", type=Path)
    parser.add_argument("--text", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4))
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--float", action="store_true")
    options = parser.parse_args()
    options.binary = str(Path(options.binary).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = measure(options, folder)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
