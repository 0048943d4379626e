# What the verbs print with the bundled model.
# SPDX-License-Identifier: MIT
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import MODEL, REPOSITORY, call, call_json

# Perplexity over four windows of the text below, in f32.
PERPLEXITY = 7.05597
# Perplexity over the first four windows of enwiki_val.txt, in f32; the whole text has 24.9037.
ENWIKI_4 = 29.0504


@pytest.mark.parametrize("index", range(8))
def test_run_gives_the_oracles_greedy_tokens_in_f32(oracle, index):
    answer = call_json("run", MODEL, oracle["prompts"][index], "--dtype", "f32", "-t", 0, "-n", 64,
                       "--ignore-eos", "--json")
    assert answer["tokens"] == oracle["greedy"][index]
    assert answer["speeds"]["prompt_tokens"] == len(oracle["prompt_ids"][index])
    assert answer["finish"] == "length"


def test_run_streams_the_text_that_json_reports(oracle):
    flags = ["--dtype", "f32", "-t", 0, "-n", 24]
    text = call_json("run", MODEL, oracle["prompts"][0], *flags, "--json")["text"]
    done = call("run", MODEL, oracle["prompts"][0], *flags)
    assert done.stdout.rstrip("\n") == text.rstrip("\n")
    for word in ("prompt tokens", "24 generated", "prefill", "decode", "first token"):
        assert word in done.stderr
    piped = call("run", MODEL, *flags, stdin=oracle["prompts"][0] + "\n")
    assert piped.stdout == done.stdout
    alone = call("run", oracle["prompts"][0], *flags)
    assert alone.stdout == done.stdout


def test_run_with_a_seed_repeats_itself():
    flags = ["run", MODEL, "Water is", "-n", 16, "--temperature", 1, "--json"]
    first, again = (call_json(*flags, "--seed", 7)["tokens"] for _ in range(2))
    assert first == again
    assert first != call_json(*flags, "--seed", 8)["tokens"]


def test_run_stops_at_a_stop_text():
    flags = ["run", MODEL, "The city of", "--dtype", "f32", "-t", 0, "-n", 64, "--json"]
    whole = call_json(*flags)["text"]
    word = whole.split()[5]
    cut = call_json(*flags, "--stop", word, "--stop", "never met")
    assert cut["finish"] == "stop"
    assert cut["text"] == whole[:whole.index(word)]


def test_run_gives_several_outputs_and_beams():
    many = call_json("run", MODEL, "Water is", "-n", 8, "--num-outputs", 3, "--seed", 1, "--json")
    assert len(many["outputs"]) == 3
    assert len({tuple(one["tokens"]) for one in many["outputs"]}) > 1
    beams = call_json("run", MODEL, "Water is", "-n", 8, "--beam", 4, "--num-outputs", 2, "--json")
    assert beams["outputs"][0]["score"] >= beams["outputs"][1]["score"]


def test_run_reports_logprobs():
    answer = call_json("run", MODEL, "Water is", "-n", 3, "-t", 0, "--logprobs", 2, "--json")
    for token in answer["logprobs"]:
        assert token["top"][0] == [token["token"], token["logprob"]]
        assert len(token["top"]) == 2


def test_run_says_how_long_each_part_of_loading_took():
    done = call("run", MODEL, "Water is", "-n", 2, "-t", 0, "--device", "cpu", "--verbose")
    assert done.returncode == 0, done.stderr
    phases = re.findall(r"^\[([0-9.]+) s\] ([a-z ]+): [0-9.]+ ms", done.stderr, re.M)
    assert [name for _, name in phases] == ["tokenizer", "weights", "prepare", "first token"]
    times = [float(time) for time, _ in phases]
    assert times == sorted(times)
    assert re.search(r"weights: [0-9.]+ ms, 25\.2 MB, [0-9.]+ GB/s", done.stderr)
    assert re.search(r"\[memory: weights 25\.2 MB, .*; peak allocated on cpu [0-9.]+ MB",
                     done.stderr)
    assert " s] " not in call("run", MODEL, "Water is", "-n", 2, "-t", 0).stderr


def test_the_time_to_the_first_token_of_a_made_up_checkpoint_is_measured(tmp_path):
    tool, report = REPOSITORY / "tools" / "measure_load.py", tmp_path / "load.json"
    command = [sys.executable, tool, os.environ["TESSERA_BINARY"], tmp_path / "model", "--shape",
               "tiny", "--rounds", "1", "--json", report, "--", "--device", "cpu"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(report.read_text())
    assert 0 < result["first_token_s"]["least"] <= result["first_token_s"]["most"]
    assert result["checkpoint_bytes"] > 2 * 2048 * 256 * 2
    assert list(result["phases"]) == ["tokenizer", "weights", "prepare", "first token"]
    assert result["first_token_s"]["median"] >= result["phases"]["first token"]["ends_s"]


def test_int8_weights_take_less_memory():
    plain, int8 = (call_json("run", MODEL, "Water is", "-n", 2, "--weights", kind, "--json")
                   for kind in ("plain", "int8"))
    assert int8["memory"]["weight_bytes"] < plain["memory"]["weight_bytes"]


def test_a_kv_cache_in_fewer_bits_takes_less_memory():
    bytes_of = {}
    for kind in ("plain", "int8", "int4"):
        answer = call_json("run", MODEL, "Water is", "-n", 40, "-t", 0, "--kv", kind, "--json")
        assert answer["kv"] == kind
        assert len(answer["tokens"]) == 40
        bytes_of[kind] = answer["memory"]["kv_bytes"]
    assert bytes_of["int4"] < bytes_of["int8"] < bytes_of["plain"]


def test_an_unknown_kv_format_is_refused_with_the_list():
    done = call("run", MODEL, "Water is", "--kv", "int3")
    assert done.returncode == 2
    assert "'int3' is not one of plain|e4m3|e5m2|int8|uint8|int4|int4_token" in done.stderr


def test_perplexity_of_a_text_is_a_fixed_number(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The history of the city is long. It was built in the year 1200.\n" * 60)
    flags = ["perplexity", MODEL, "--text", text, "--window", 128, "--limit", 4, "--json"]
    f32 = call_json(*flags, "--dtype", "f32")
    assert f32["windows"] == 4
    assert f32["tokens"] == 4 * 127
    assert f32["ppl"] == pytest.approx(PERPLEXITY, rel=1e-3)
    bf16 = call_json(*flags, "--dtype", "bf16")
    assert bf16["ppl"] == pytest.approx(PERPLEXITY, rel=2e-2)
    assert "perplexity" in call(*flags[:-1]).stdout


def test_perplexity_agrees_with_the_oracle_on_the_first_windows():
    text = REPOSITORY.parent / "shared" / "data" / "text" / "enwiki_val.txt"
    if not text.exists():
        pytest.skip("the reference text is not here")
    result = call_json("perplexity", MODEL, "--text", text, "--limit", 4, "--dtype", "f32",
                       "--json")
    assert result["tokens"] == 4 * 1023
    assert result["ppl"] == pytest.approx(ENWIKI_4, rel=5e-4)


def test_inspect_counts_what_is_there():
    found = call_json("inspect", MODEL, "--json", "--tensors")
    assert found["config"]["num_layers"] == 6
    assert found["config"]["parameters"] == sum(found["tensors"]["elements_by_type"].values())
    assert len(found["tensors"]["table"]) == found["tensors"]["count"]
    assert found["kv_cache"]["bytes_per_token"]["bf16"] == 6 * 2 * 2 * 64 * 2
    assert found["kv_cache"]["paged_waste"] < 0.04
    assert found["has_chat_template"] is False
    page = call("inspect", MODEL).stdout
    assert "base model" in page and "141 GB GPU" in page


def test_inspect_takes_one_file():
    file = sorted(MODEL.glob("*.safetensors"))[0]
    found = call_json("inspect", file, "--json", "--tensors")
    assert found["bytes"] == file.stat().st_size
    assert str(file.name) in call("inspect", file).stdout


def make_eval_files(folder):
    (folder / "swag.txt").write_text(
        "The capital of France\n1\nxq zv kk.\nis the city of Paris.\npurple.\n99 of of.\n" * 3)
    (folder / "arc.jsonl").write_text("".join(json.dumps(
        {"query": "Question: What is water?", "choices": ["a liquid", "zq xv"], "gold": gold})
        + "\n" for gold in (0, 0, 1)))
    for part, rows in (("dev", 2), ("test", 3)):
        (folder / part).mkdir()
        (folder / part / f"birds_{part}.csv").write_text(
            "question,choice0,choice1,choice2,choice3,answer\n"
            + '"Do birds, fly?",yes,no,maybe,never,0\n' * rows)


def test_eval_runs_every_task(tmp_path):
    make_eval_files(tmp_path)
    swag = call_json("eval", "hellaswag", MODEL, "--data", tmp_path / "swag.txt", "--json")
    assert swag["questions"] == 3
    assert swag["acc_norm"] == 1.0
    arc = call_json("eval", "arc", MODEL, "--data", tmp_path / "arc.jsonl", "--shots", 1, "--json")
    assert arc["questions"] == 2
    assert arc["shots"] == 1
    assert arc["acc"] in (0.0, 0.5, 1.0)
    mmlu = call_json("eval", "mmlu", MODEL, "--data", tmp_path, "--limit", 2, "--json")
    assert mmlu["questions"] == 2
    assert mmlu["shots"] == 2
    assert "acc" in call("eval", "mmlu", MODEL, "--data", tmp_path).stdout


def test_eval_reads_packed_files(tmp_path):
    make_eval_files(tmp_path)
    if shutil.which("bzip2") is None:
        pytest.skip("no bzip2 here")
    subprocess.run(["bzip2", "-k", str(tmp_path / "swag.txt")], check=True)
    swag = call_json("eval", "hellaswag", "--data", tmp_path / "swag.txt.bz2", "--json")
    assert swag["questions"] == 3


def test_bench_hash_is_the_same_every_time():
    lines = [call("bench", "--cpu", "--hash", "--row", "rms_norm_cpu_f32").stdout.splitlines()
             for _ in range(2)]
    assert lines[0] == lines[1] and len(lines[0]) > 10
    hashes = [line.rpartition("  ")[2] for line in lines[0]]
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in hashes)
    assert len(set(hashes)) > 5  # different shapes, different results


def test_bench_e2e_reports_speeds_and_memory(tmp_path):
    report = call_json("bench", "e2e", "--prompt", 32, "--generate", 8, "--batch", 2, "--repeat", 1,
                       "--warmup", 0, "--json", "-")
    result = report["results"][0]
    assert result["shape"] == {"batch": 2, "prompt": 32, "generate": 8}
    for key in ("prefill_tokens_per_second", "decode_tokens_per_second", "weight_gbs"):
        assert result[key] > 0
    assert result["step_ms"]["p10"] <= result["step_ms"]["median"] <= result["step_ms"]["p90"]
    assert result["memory"]["weight_bytes"] > 25_000_000
    assert result["memory"]["peak_resident_bytes"] > result["memory"]["weight_bytes"]
    assert result["memory"]["peak_device_bytes"] >= result["memory"]["device_bytes"]
    assert result["memory"]["device_bytes"] > result["memory"]["weight_bytes"]
    for key in ("cpu", "threads", "commit", "date", "model", "dtype"):
        assert report[key]
    file = tmp_path / "out.json"
    done = call("bench", "e2e", "tg4", "--shape", "tessera-13m", "--repeat", 1, "--json", file)
    assert done.returncode == 0
    assert "decode" in done.stdout
    assert json.loads(file.read_text())["random_weights"] is True
    assert json.loads(file.read_text())["results"][0]["pass_ms"] > 0


def test_bench_e2e_tells_what_masks_cost():
    quick = ("bench", "e2e", "--shape", "tessera-13m", "--repeat", 2, "--batch", 4, "--prompt", 16)
    result = call_json(*quick, "--generate", 30, "--constrained", "--json", "-")["results"][0]
    cost = result["constraint"]
    assert json.loads(cost["schema"])["type"] == "array"
    # Two passes of four sequences, each with the token that its prompt yields.
    assert cost["masks"] == 2 * 4 * 31 and cost["mask_us"] > 0 and cost["wasted_rows"] == 0
    assert cost["step_ms"]["median"] > 0 and cost["decode_tokens_per_second"] > 0
    assert cost["cost"] > -1 and cost["cost_of_median_step"] > -1
    done = call(*quick, "--generate", 0, "--constrained")
    assert done.returncode == 2 and "--constrained is for workloads that generate" in done.stderr


def test_doctor_knows_the_machine():
    found = call_json("doctor", "--json")
    assert found["cpu"]["simd"] in ("baseline", "avx2", "avx512")
    assert found["cpu"]["threads"] >= 1
    assert "vectors" in call("doctor").stdout


TEMPLATE = ("{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n"
            "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


@pytest.fixture
def chat_model(tmp_path):
    """The bundled model with a chat template beside it."""
    for file in MODEL.iterdir():
        shutil.copy(file, tmp_path)
    settings = json.loads((MODEL / "tokenizer_config.json").read_text())
    settings["chat_template"] = TEMPLATE
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return tmp_path


def test_run_uses_the_chat_template_where_there_is_one(chat_model):
    flags = ["-t", 0, "-n", 8, "--dtype", "f32", "--json"]
    written = call_json("run", MODEL, "system: Be kind.\nuser: Hi\nassistant:", *flags)
    assert call_json("run", chat_model, "Hi", "--system", "Be kind.", *flags)["tokens"] \
        == written["tokens"]
    plain = call_json("run", MODEL, "Hi", *flags)
    assert call_json("run", chat_model, "Hi", "--no-chat", *flags)["tokens"] == plain["tokens"]
    assert call_json("run", chat_model, "Hi", *flags)["speeds"]["prompt_tokens"] \
        > plain["speeds"]["prompt_tokens"]


def test_ctrl_c_ends_an_answer_with_its_figures():
    process = subprocess.Popen([os.environ["TESSERA_BINARY"], "run", str(MODEL), "Water is", "-n",
                                "2000", "--ignore-eos"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, figures = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"generated" in figures and b" 2000 generated" not in figures


class Terminal:
    """A conversation with `tessera run` on a terminal of its own."""

    def __init__(self, *arguments):
        try:
            pid, self.master = pty.fork()
        except OSError as error:  # a container without /dev/pts
            pytest.skip(f"no pseudo-terminal can be had here: {error}")
        if pid == 0:
            os.execv(os.environ["TESSERA_BINARY"], ["tessera", *map(str, arguments)])
        self.pid = pid
        self.seen = ""

    def wait_for(self, text, seconds=60):
        os.set_blocking(self.master, False)
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text):
        os.write(self.master, text.encode())

    def status(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat_answers_obeys_and_survives_ctrl_c():
    terminal = Terminal("run", MODEL, "-n", "2000", "--ignore-eos")
    terminal.wait_for("> ")
    terminal.type("/help\n")
    terminal.wait_for("/reset")
    terminal.wait_for("> ")
    terminal.type("The city of\n")
    terminal.wait_for("The city of\r\n")
    terminal.wait_for(" ")  # the answer has begun
    os.kill(terminal.pid, signal.SIGINT)
    stats = terminal.wait_for("generated") + terminal.wait_for("> ")
    assert "2000 generated" not in stats and "tok/s" in stats
    terminal.type("/quit\n")
    assert terminal.status() == 0


def test_loading_shows_bytes_and_their_rate_on_a_terminal_only():
    terminal = Terminal("run", MODEL, "Water is", "-n", "2", "-t", "0")
    terminal.wait_for("loading [")
    assert re.match(r"[#-]{24}\] [0-9]+ %  0\.0 of 0\.0 GB, [0-9.]+ ", terminal.wait_for("GB/s"))
    terminal.wait_for("\r\x1b[K")  # erased before the answer
    assert "loading" not in terminal.wait_for("generated")
    assert terminal.status() == 0
    assert "loading" not in call("run", MODEL, "Water is", "-n", 2, "-t", 0).stderr


def test_chat_remembers_until_reset(chat_model):
    terminal = Terminal("run", chat_model, "-n", "4", "-t", "0")
    counts = []
    for line in ("Hi", "Hi", "/reset", "Hi"):
        terminal.wait_for("> ")
        terminal.type(line + "\n")
        if line == "Hi":
            counts.append(int(terminal.wait_for(" prompt tokens").split("[")[-1]))
    assert counts[1] > counts[0] == counts[2]
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.status() == 0
