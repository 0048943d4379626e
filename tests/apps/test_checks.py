# What is refused before weights are read, in which words, with which exit status.
# SPDX-License-Identifier: MIT
import json
import os
import re
import resource
import shutil
import subprocess

import pytest

from conftest import MODEL, call, call_json

BINARY = os.environ["TESSERA_BINARY"]
SMALL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def copy_model(folder, *, with_weights=True, **config):
    """The bundled model with other values in its config.json."""
    folder.mkdir()
    for path in MODEL.iterdir():
        if with_weights or path.name in SMALL:
            shutil.copy(path, folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


@pytest.fixture(scope="module")
def weightless(tmp_path_factory):
    """A model without weights, for checks that must come before the weights are read."""
    return copy_model(tmp_path_factory.mktemp("models") / "weightless", with_weights=False)


def refused(done, status):
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("tessera: "), done.stderr
    message = re.sub(r" \([a-z_]+\.(cpp|h):[0-9]+\)", "", lines[0][len("tessera: "):])
    for word in ("_", "request:", "engine:"):  # names of the library, not of the flags
        assert word not in message.replace("TESSERA_RUN_", ""), message
    return message


def test_without_weights_a_good_command_line_fails_at_the_weights(weightless):
    done = call("run", weightless, "hello", "-n", 4)
    assert done.returncode == 1
    assert "safetensors" in done.stderr


# The flag as it is typed, its value, and how the refusal begins.
BAD = [
    ("-t", "nan", "-t is nan; give 0 to 10"),
    ("--temperature", "nan", "--temperature is nan; give 0 to 10"),
    ("--temperature", "11", "--temperature is 11; give 0 to 10"),
    ("-t", "", "-t: '' is not a number"),
    ("--top-p", "0", "--top-p is 0; give more than 0, up to 1"),
    ("--top-k", "-1", "--top-k is -1;"),
    ("--top-k", "4294967297", "--top-k: '4294967297' is too large"),
    ("--min-p", "inf", "--min-p is inf; give 0 to 1"),
    ("--typical-p", "-0.1", "--typical-p is -0.1;"),
    ("--repetition-penalty", "0", "--repetition-penalty is 0;"),
    ("--presence-penalty", "3", "--presence-penalty is 3;"),
    ("--frequency-penalty", "-3", "--frequency-penalty is -3;"),
    ("--logit-bias", "8192:1", "--logit-bias names token 8192;"),
    ("--stop", "", "--stop is empty"),
    ("--stop-token", "-1", "--stop-token is -1;"),
    ("-n", "0", "-n is 0; give at least 1"),
    ("--max-tokens", "0", "--max-tokens is 0; give at least 1"),
    ("-n", "9223372036854775808", "-n: '9223372036854775808' is too large; the most is"),
    ("--max-tokens", "8388608T", "--max-tokens: '8388608T' is too large; the most is"),
    ("--num-outputs", "65536", "--num-outputs is 65536; give 1 to 64"),
    ("--num-outputs", "99999999999", "--num-outputs is 99999999999"),
    ("--beam", "33", "--beam is 33; give 0 to 32"),
    ("--length-penalty", "nan", "--length-penalty is nan;"),
    ("--logprobs", "21", "--logprobs is 21;"),
    ("--logprobs", "9223372036854775808", "--logprobs: '9223372036854775808' is too large"),
    ("--context", "4096", "--context is 4096; the model was made for 2048 tokens"),
    ("--context", "2G", "--context is 2147483648; give 0 to"),
    ("--kv-bytes", "1K", "a context of 2048 tokens needs"),
    ("--seed", "-1", "--seed is '-1'; it must be a number from 0 to 2^64-1"),
    ("--seed", "18446744073709551616", "--seed is '18446744073709551616'"),
    ("--threads", "9223372036854775808", "--threads: '9223372036854775808' is too large"),
]


@pytest.mark.parametrize("flag, value, words", BAD, ids=[f"{f} {v}" for f, v, _ in BAD])
def test_a_bad_value_is_refused_before_weights_by_the_flag_as_typed(weightless, flag, value, words):
    # A --kv-bytes that is too small is found when memory is planned, which is also before weights.
    status = 1 if flag == "--kv-bytes" else 2
    assert refused(call("run", weightless, "hello", flag, value), status).startswith(words)


def test_a_bad_value_of_a_variable_is_refused_by_the_variables_name(weightless):
    done = call("run", weightless, "hello", TESSERA_RUN_TEMPERATURE="nan")
    assert "(TESSERA_RUN_TEMPERATURE is 'nan')" in refused(done, 2)


def test_the_largest_seed_is_taken_and_is_a_seed_of_its_own():
    flags = ["run", MODEL, "Water is", "-n", 16, "-t", 1, "--json"]
    largest, again = (call_json(*flags, "--seed", 2**64 - 1)["tokens"] for _ in range(2))
    assert largest == again
    assert largest != call_json(*flags, "--seed", 2**63 - 1)["tokens"]


def test_a_prompt_that_fills_the_context_is_refused_before_weights(weightless):
    message = refused(call("run", weightless, "hello " * 3000), 1)
    assert "the context ends at 2048" in message and "--context" in message


def test_a_chat_template_that_cannot_be_read_is_refused_before_weights(tmp_path):
    folder = copy_model(tmp_path / "model", with_weights=False)
    settings = {"chat_template": "{% for message in messages %}{{ message.content }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    done = call("run", folder, "hello")
    assert done.returncode == 1
    assert "safetensors" not in done.stderr and "endfor" in done.stderr, done.stderr
    assert call("run", folder, "hello", "--no-chat").returncode == 1


def test_perplexity_checks_its_window_and_text_before_weights(weightless, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The city of Rome lies on the river Tiber. " * 20)
    run = ("perplexity", weightless, "--text", text, "--window")
    assert "--window is 4096; this model's context" in refused(call(*run, 4096), 2)
    assert "--window is 1; it must be at least 2" in refused(call(*run, 1), 2)
    assert "fill no window of 2048" in call(*run, 2048).stderr
    small = call_json("perplexity", MODEL, "--text", text, "--window", 2, "--limit", 4, "--json")
    assert small["tokens"] == 4


# --- memory ---------------------------------------------------------------------------------------


def call_measured(*arguments, limit=None):
    """(exit status, standard error, peak of resident memory in bytes)."""
    def set_limit():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    kept = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA_")}
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env=kept, preexec_fn=set_limit)
    errors = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, errors, usage.ru_maxrss * 1024


IS_SANITIZED = "asan" in BINARY or "tsan" in BINARY


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer's own memory is counted too")
def test_a_model_of_a_million_positions_takes_memory_for_those_it_reaches(tmp_path):
    folder = copy_model(tmp_path / "model", max_position_embeddings=1 << 20)
    status, errors, peak = call_measured("run", folder, "The city of", "-n", 4, "-t", 0,
                                         "--device", "cpu", "--kv-bytes", "3300M")
    if status == 3:
        pytest.skip(errors)
    assert status == 0, errors
    assert peak < 300 << 20  # a million tokens: keys and values 3.2 GB, angles 268 MB
    short = call_json("run", MODEL, "The city of", "-n", 4, "-t", 0, "--device", "cpu", "--json")
    long = call_json("run", folder, "The city of", "-n", 4, "-t", 0, "--device", "cpu", "--json",
                     "--kv-bytes", "3300M")
    assert long["tokens"] == short["tokens"]


def test_memory_that_is_too_short_is_refused_with_the_needs_and_the_remedy(tmp_path):
    folder = copy_model(tmp_path / "model", with_weights=False, max_position_embeddings=1 << 26)
    run = ("run", folder, "hello", "--device", "cpu")
    status, errors, peak = call_measured(*run, "--context", "64K", "--kv-bytes", "1024T")
    assert status == 3, errors
    assert "--kv-bytes is 1125899906842624;" in errors and "bytes are free" in errors
    assert peak < 200 << 20 or IS_SANITIZED
    # For 67,108,864 tokens the RoPE angles take 17 GB, keys and values 206 GB.
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 800e9:
        pytest.skip("a quarter of this machine's memory may hold it")
    status, errors, peak = call_measured(*run)
    assert status == 3, errors
    assert "67108864" in errors and "bytes are free" in errors and "lower --context" in errors
    assert peak < 200 << 20 or IS_SANITIZED


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer reserves terabytes")
def test_a_limit_of_the_process_counts_as_memory(tmp_path):
    folder = copy_model(tmp_path / "model", with_weights=False)
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert kilobytes > 0
    statuses = set()
    for limit in range(40 << 20, 400 << 20, 20 << 20):
        status, errors, _ = call_measured("run", folder, "hello", "--device", "cpu", "--dtype",
                                          "f32", "--threads", 1, limit=limit)
        statuses.add(status)
        assert status in (1, 3, 127), (limit, errors)  # 127: not even the program's libraries fit
        if status == 3 and "the model needs" in errors:
            assert "bytes are free: lower --context, use --weights int8" in errors
            assert "set --dtype to bf16" in errors
    assert 3 in statuses


def test_bench_e2e_refuses_a_shape_beyond_memory_at_once():
    if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 250e9:
        pytest.skip("280 GB of weights may fit here")
    status, errors, peak = call_measured("bench", "e2e", "pp4", "--shape", "llama3-70b", "--dtype",
                                         "f32", "--device", "cpu")
    assert status == 3, errors
    assert "the model needs 28" in errors and "bytes are free: lower --context" in errors
    assert peak < 200 << 20 or IS_SANITIZED


# --- input and output -----------------------------------------------------------------------------


def with_stdin(stdin, *arguments):
    return subprocess.run([BINARY, *map(str, arguments)], stdin=stdin, capture_output=True,
                          text=True, timeout=120)


def test_standard_input_that_cannot_be_read_is_an_error(weightless, tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    done = with_stdin(folder, "run", weightless)
    os.close(folder)
    assert "standard input could not be read: Is a directory" in refused(done, 1)
    closed = subprocess.run(["sh", "-c", 'exec "$0" run "$1" <&-', BINARY, str(weightless)],
                            capture_output=True, text=True, timeout=120)
    assert "standard input could not be read: Bad file descriptor" in refused(closed, 1)


def test_standard_input_without_end_is_refused(weightless):
    with open("/dev/zero", "rb") as zeros:
        done = with_stdin(zeros, "run", weightless)
    assert "standard input has more than 67108864 bytes" in refused(done, 1)


def test_an_empty_prompt_flag_is_a_prompt():
    done = call("run", MODEL, "-p", "", "-n", 2, "-t", 0, stdin="not read")
    assert done.returncode == 0, done.stderr
    assert "1 prompt tokens" in done.stderr


FULL = [["-h"], ["--help-all"], ["--version"], ["version"], ["help", "run"], ["run", "-h"],
        ["inspect"], ["inspect", "--json"], ["doctor"], ["bench", "--list"],
        ["bench", "--workloads"],
        ["bench", "elementwise", "--row", "rms_norm_cpu_f32", "--small", "--cpu", "--iters", "1"],
        ["bench", "e2e", "pp4", "--device", "cpu", "--repeat", "1", "--warmup", "0"],
        ["run", "The city of", "-n", "2", "--device", "cpu"],
        ["run", "The city of", "-n", "2", "--device", "cpu", "--json"]]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", FULL, ids=" ".join)
def test_a_full_disk_is_an_error_whatever_is_printed(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=300)
    assert done.returncode == 1, done.stderr
    assert "could not be written: No space left on device" in done.stderr


@pytest.mark.parametrize("verb", [["bench", "elementwise", "--cpu", "--small"],
                                  ["bench", "e2e", "--shape", "llama3-8b"]], ids=" ".join)
@pytest.mark.parametrize("path", ["/no/such/folder/x.json", "/tmp"])
def test_a_results_file_that_cannot_be_written_is_refused_before_the_run(verb, path):
    message = refused(call(*verb, "--json", path), 1)
    assert message.startswith(f"results cannot be written to {path}: ")


def test_a_results_file_is_kept_until_there_are_results(tmp_path):
    kept, new = tmp_path / "kept.json", tmp_path / "new.json"
    kept.write_text("before")
    for path in (kept, new):
        assert call("bench", "e2e", "--json", path, "--model", tmp_path / "none").returncode == 1
        assert call("bench", "e2e", "pp5000", "--json", path).returncode == 1
    assert kept.read_text() == "before"
    assert not new.exists()


def test_paths_that_are_not_utf8_are_paths(tmp_path):
    odd = os.path.join(os.fsencode(tmp_path), b"m\xff\xfe")
    shutil.copytree(os.fsencode(MODEL), odd)
    text = os.path.join(os.fsencode(tmp_path), b"t\xff.txt")
    with open(text, "wb") as file:
        file.write(b"The city of Rome lies on the river Tiber. " * 40)
    for arguments in (["inspect", odd, "--json"], ["inspect", odd],
                      ["run", odd, "The city of", "-n", "2", "--json"],
                      ["perplexity", odd, "--text", text, "--window", "16", "--limit", "1",
                       "--json"],
                      ["bench", "e2e", "pp4", "--model", odd, "--repeat", "1", "--json", "-"]):
        done = subprocess.run([BINARY.encode(), *arguments], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        if "--json" in arguments:
            assert json.loads(done.stdout.decode())
    done = subprocess.run([BINARY.encode(), "inspect", odd + b"x"], capture_output=True, timeout=60)
    assert done.returncode == 1 and b"json.exception" not in done.stderr


def test_a_prompt_the_tokenizer_covers_nothing_of_is_refused(tmp_path):
    folder = copy_model(tmp_path / "model", with_weights=False)
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": None,
                 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"],
                           "unk_token": None, "byte_fallback": False}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    message = refused(call("run", folder, "хлеб"), 2)
    assert "no token for anything in the prompt of 8 bytes" in message
    chat = {"chat_template": "ab{% for m in messages %}{{ m.content }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(chat))
    assert "no token for anything in the prompt" in refused(call("run", folder, "хлеб"), 2)
    assert "safetensors" in call("run", folder, "abba").stderr


def test_the_help_page_names_every_exit_status():
    page = " ".join(call("-h").stdout.split())
    for words in ("0 worked", "1 failed", "2 wrong command line", "3 out of memory",
                  "130 interrupted"):
        assert words in page
