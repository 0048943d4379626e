#!/usr/bin/env python3
# What Python adds and gains: patched Transformers models, torch.compile, tessera.LLM, single calls.
# SPDX-License-Identifier: MIT
"""python_bars.py [--json FILE] [--only PART,PART] [--tiny] [--device cpu] [--budget SECONDS]

Parts, each in a process of its own with a time limit; what a part has measured before it ends or is
stopped is kept:
  tests    the GPU tests of the Python package
  patch    tessera.hf.patch on a Llama-3-8B with random weights: decode, prefill, memory
  compile  torch.compile(fullgraph=True) over a block of our operations
  llm      tessera.LLM beside `tessera bench e2e`, on the same checkpoint with random weights
  call     the host's cost of a call with three tensors
Needs PyTorch, $TESSERA_LIBRARY or a build, and for `llm` the program ($TESSERA_BINARY or a build).
--tiny makes everything small, to try the script itself on a CPU.
"""

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "python", "tests/python", "tools")]

# Most seconds of each; --budget is for all of them.
PARTS = {"call": 20, "patch": 100, "llm": 75, "compile": 70, "tests": 100}


class Record:
    """Results of a part, written to a file after each one."""

    def __init__(self, path):
        self.path, self.results = path, []

    def add(self, workload, **fields):
        self.results.append({"workload": workload, **fields})
        print(json.dumps(self.results[-1]), flush=True)
        self.write()

    def write(self):
        Path(self.path).write_text(json.dumps(self.results))


def median_ms(run, device, repeats=20, warmup=3, calls=1):
    """Of a call, with the wait for the end of `calls` of them."""
    import torch

    wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    times = []
    for i in range(warmup + repeats):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        if i >= warmup:
            times.append((time.perf_counter() - begin) * 1e3 / calls)
    return round(statistics.median(times), 4)


def run_call(record, options):
    """The bar: at most 5 us of Python for a call with three tensors."""
    import call_cost
    import torch

    devices = ["cpu"] + ["cuda"] * (options.device != "cpu")
    for device in devices:
        x, weight = torch.ones(1, 8, device=device), torch.ones(8, device=device)
        out = torch.empty_like(x)
        stream, wait = None, (lambda: None)
        if device == "cuda":
            stream, wait = torch.cuda.current_stream().cuda_stream, torch.cuda.synchronize
        cost = call_cost.rms_norm_cost(x, weight, out, stream, wait)
        record.add(
            "call", operation="rms_norm(x, weight, out=out)", device=device,
            whole_us=round(cost.whole, 3), without_work_us=round(cost.empty, 3),
            c_function_us=round(cost.bare, 3), python_us=round(cost.whole - cost.bare, 3), bar_us=5,
        )


def make_block(options):
    """A decoder layer over torch.ops.tessera: five kinds of operations, seven calls."""
    import tessera.torch  # noqa: F401
    import torch
    from tessera import make_rope_table, pack_gate_up

    hidden, inter, heads, kv_heads, d = (64, 96, 4, 2, 16) if options.tiny else (
        4096, 14336, 32, 8, 128)
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    ops, device = torch.ops.tessera, options.device

    def random(*shape):
        return (torch.randn(*shape, device=device) * shape[-1] ** -0.5).to(dtype)

    qkv, out = random((heads + 2 * kv_heads) * d, hidden), random(hidden, heads * d)
    gate_up = pack_gate_up(random(inter, hidden), random(inter, hidden))
    down, norm = random(hidden, inter), torch.ones(hidden, device=device, dtype=dtype)
    table = make_rope_table(4096, d, like=norm)

    def block(x, positions):
        tokens = x.shape[0]
        product = ops.gemm(ops.rms_norm(x, norm), qkv, is_b_static=True)
        heads_of = product.view(tokens, heads + 2 * kv_heads, d)
        q, k, v = (y.contiguous() for y in heads_of.split([heads, kv_heads, kv_heads], 1))
        ops.rope(q, k, positions, table)
        mixed = ops.attention_prefill(q[None], k[None], v[None], causal=True)
        x = ops.gemm(mixed.reshape(tokens, -1), out, residual=x, is_b_static=True)
        inner = ops.gemm(
            ops.rms_norm(x, norm), gate_up, activation="silu", is_gated=True, is_b_static=True)
        return ops.gemm(inner, down, residual=x, is_b_static=True)

    return block, lambda tokens: (random(tokens, hidden), torch.arange(tokens, device=device))


def run_compile(record, options):
    """The bar: no graph break, the same results, no slower than the calls without it."""
    import torch
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    block, inputs = make_block(options)
    backend = "aot_eager" if options.device == "cpu" else "inductor"
    with torch.no_grad():
        for mode in (None, "reduce-overhead") if backend == "inductor" else (None,):
            more = {"mode": mode} if mode else {"backend": backend}
            compiled = torch.compile(block, fullgraph=True, dynamic=False, **more)
            for tokens in (16, 2048) if not options.tiny else (5,):
                given = inputs(tokens)
                want = block(*given)
                torch.compiler.cudagraph_mark_step_begin()
                got = compiled(*given).clone()
                worst = (got.float() - want.float()).abs().max().item()
                plain = median_ms(lambda: block(*given), options.device, calls=10)
                ours = median_ms(lambda: compiled(*given), options.device, calls=10)
                record.add(
                    "compile", tokens=tokens, backend=mode or backend,
                    graph_breaks=sum(counters["graph_break"].values()),
                    is_equal=bool(torch.equal(got, want)), worst_difference=worst, plain_ms=plain,
                    compiled_ms=ours, ratio=round(plain / ours, 3), bar_ratio=1.0,
                )


def engine_seconds(options, folder, batch, prompt, generate, out):
    """The C++ engine's time for the batch by `tessera bench e2e`: prefill and decode."""
    command = [options.binary, "bench", "e2e", "--model", str(folder), "--batch", str(batch),
               "--prompt", str(prompt), "--generate", str(generate), "--repeat", "3",
               "--warmup", "1", "--device", options.engine_device, "--json", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (result,) = json.loads(Path(out).read_text())["results"]
    decode = batch * generate / result["decode_tokens_per_second"]
    return result["prefill_ms"] / 1e3 + decode, result["decode_tokens_per_second"]


def run_llm(record, options):
    """The bar: tessera.LLM adds at most 2 % to the C++ engine at batch 1 and 64."""
    import random

    import measure_load
    import tessera

    folder = Path(options.scratch) / "model"
    measure_load.write_checkpoint(
        folder, measure_load.SHAPES["tiny" if options.tiny else "llama3-8b"])
    shapes = [(1, 512, 128), (64, 512, 128)] if not options.tiny else [(1, 32, 16), (4, 32, 16)]
    for batch, prompt, generate in shapes:
        engine, rate = engine_seconds(
            options, folder, batch, prompt, generate, Path(options.scratch) / "e2e.json")
        rng = random.Random(7)
        vocab = 2048 if options.tiny else 128256
        prompts = [[rng.randrange(vocab - 256) for _ in range(prompt)] for _ in range(batch)]
        params = tessera.SamplingParams(temperature=0, max_tokens=generate + 1, ignore_eos=True)
        times = []
        with tessera.LLM(
            folder, device=options.engine_device, context=prompt + generate + 2, max_batch=batch,
            prefix_cache=False, progress=False,
        ) as llm:
            for _ in range(4):
                begin = time.perf_counter()
                results = llm.generate(prompts, params)
                times.append(time.perf_counter() - begin)
            assert all(len(one.tokens) == generate + 1 for one in results)
        ours = statistics.median(times[1:])
        record.add(
            "llm", batch=batch, prompt=prompt, generate=generate, engine_s=round(engine, 4),
            python_s=round(ours, 4), added_percent=round((ours / engine - 1) * 100, 2),
            engine_decode_tokens_per_second=rate, rounds_s=[round(t, 4) for t in times],
            bar_percent=2,
        )


def run_tests(record, options):
    """The tests that use a GPU, by pytest or, without it, case by case."""
    environment = dict(os.environ, TESSERA_REQUIRE_GPU="0" if options.device == "cpu" else "1")
    names = ["test_hf_cuda.py", "test_torch_cuda.py", "test_custom_ops.py", "test_custom_kv_ops.py"]
    try:
        import pytest  # noqa: F401

        command = [sys.executable, "-B", "-m", "pytest", "-v", "-p", "no:cacheprovider"]
        command += [str(ROOT / "tests" / "python" / name) for name in names]
    except ImportError:
        command = [sys.executable, "-B", str(ROOT / "tools" / "python_cuda_cases.py")]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    record.add("tests", command=" ".join(Path(c).name for c in command[1:]), **counts, said="")
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.STDOUT)
    for line in process.stdout:  # "… PASSED" by pytest, "FAILED …" by the cases
        word = next((one for one in counts if f" {one.upper()}" in line), None)
        if line.startswith("FAILED "):
            word = None if "::" in line else "failed"  # pytest repeats what failed at the end
        if word:
            counts[word] += 1
            record.results[-1].update(counts)
        elif line.strip():
            record.results[-1]["said"] = line.strip()
            print(line, end="")
        record.write()
    record.results[-1]["status"] = process.wait()
    record.write()


def run_patch(record, options):
    import python_bars_model

    python_bars_model.run(record, options, median_ms)


def describe(options):
    """Where and with what the results were measured."""
    import tessera
    import torch

    versions = {"torch": torch.__version__, "python": sys.version.split()[0]}
    try:
        import transformers

        versions["transformers"] = transformers.__version__
    except ImportError:
        versions["transformers"] = None
    gpu = "none, on the CPU"
    if options.device != "cpu":
        gpu = torch.cuda.get_device_name(0)
    return {
        "gpu": gpu, "cuda": torch.version.cuda, "commit": tessera.__commit__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **versions, "tiny": options.tiny,
    }


def run_part(name, limit, options):
    """(results, what went wrong or "")"""
    out = Path(options.scratch) / f"{name}.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-B", __file__, "--part", name, "--part-json", str(out)]
    command += ["--scratch", options.scratch, "--device", options.device]
    command += ["--tiny"] * options.tiny
    print(f"== {name}, at most {limit:.0f} s", flush=True)
    problem = ""
    process = subprocess.Popen(command, start_new_session=True)  # a group, to be stopped as a whole
    try:
        if process.wait(timeout=limit):
            problem = f"ended with status {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        problem = f"stopped after {limit:.0f} s"
    return (json.loads(out.read_text()) if out.exists() else []), problem


def roomy():
    """A folder in memory if the checkpoint of 16 GB fits there twice, else None: the usual one."""
    memory = Path("/dev/shm")
    return memory if memory.exists() and shutil.disk_usage(memory).free > 32e9 else None


def find_binary():
    given = os.environ.get("TESSERA_BINARY")
    places = [given] if given else [
        str(ROOT / "build" / preset / "apps" / "tessera") for preset in ("release", "cpu")]
    return next((place for place in places if Path(place).exists()), places[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the results to this file, after each part")
    parser.add_argument("--only", help="parts, with commas between them")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--budget", type=float, default=295, help="seconds for all parts")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--part-json", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.binary = find_binary()
    options.engine_device = "cpu" if options.device == "cpu" else "cuda:0"
    if options.part:
        globals()[f"run_{options.part}"](Record(options.part_json), options)
        return 0
    import tempfile

    names = options.only.split(",") if options.only else list(PARTS)
    record = {**describe(options), "problems": {}, "results": []}
    end = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory(dir=roomy(), prefix="tessera_bars_") as options.scratch:
        for name in names:
            limit = min(PARTS[name], end - time.monotonic())
            if limit < 5:
                record["problems"][name] = "no time was left"
                continue
            results, problem = run_part(name, limit, options)
            record["results"] += results
            if problem:
                record["problems"][name] = problem
            if options.json:
                Path(options.json).write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    return 1 if record["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
