# How the binary behaves before it does any work: help, errors, exit statuses, environment.
# SPDX-License-Identifier: MIT
import os
import subprocess

import pytest

from conftest import MODEL, call, call_json

VERBS = ["run", "bench", "perplexity", "eval", "quantize", "inspect", "doctor"]


def one_line(done):
    """The error message: the only line, beginning with the program's name."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tessera: ")
    return lines[0]


def test_help_fits_a_screen():
    done = call("-h")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS + ["bench e2e"])
def test_help_of_a_verb_fits_forty_rows_and_is_reached_three_ways(verb):
    done = call(*verb.split(), "-h")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 40
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert call("help", *verb.split()).stdout == done.stdout
    assert "TESSERA_" in call(*verb.split(), "--help-all").stdout


def test_a_wrong_flag_is_answered_with_the_right_one():
    done = call("run", "--temprature", "0.5", "hello there")
    assert done.returncode == 2
    assert "did you mean --temperature?" in one_line(done)


def test_a_wrong_verb_is_answered_with_the_right_one():
    done = call("inspct")
    assert done.returncode == 2
    assert "did you mean inspect?" in one_line(done)


@pytest.mark.parametrize("arguments", [[], ["run", "--dtype", "f8"], ["run", "--kv-bytes", "2Q"],
                                       ["perplexity"], ["eval"], ["eval", "arc"], ["help", "x"],
                                       ["eval", "sudoku", "--data", "x"],
                                       ["run", "--device", "tpu", "-p", "x"],
                                       ["run", "--seed", "-1", "-p", "x"],
                                       ["run", "--step-timeout", "-1", "-p", "x"],
                                       ["run", "--step-timeout", "nan", "-p", "x"],
                                       ["run", "--temperature", "-1", "-p", "x"],
                                       ["run", "--chat", "-p", "x"],
                                       ["bench", "e2e", "nothing"],
                                       ["bench", "e2e", "--shape", "llama3-8c"]])
def test_a_command_line_that_cannot_be_meant_is_status_2(arguments):
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    one_line(done)


@pytest.mark.parametrize("arguments", [["run", "/no/such", "x"], ["inspect", "/no/such"],
                                       ["perplexity", "--text", "/no/such"],
                                       ["eval", "arc", "--data", "/no/such"]])
def test_what_fails_is_status_1_and_one_line(arguments):
    done = call(*arguments)
    assert done.returncode == 1
    one_line(done)


def test_a_flag_is_read_from_the_environment():
    given = call_json("run", MODEL, "The city of", "--json", "-n", 4, "-t", 0)
    read = call_json("run", MODEL, "The city of", TESSERA_RUN_JSON="1",
                     TESSERA_RUN_MAX_TOKENS="4", TESSERA_RUN_TEMPERATURE="0")
    assert read["tokens"] == given["tokens"]
    assert len(read["tokens"]) == 4


def test_a_bad_value_in_the_environment_names_the_variable():
    done = call("run", "-p", "x", TESSERA_RUN_TOP_K="many")
    assert done.returncode == 2
    assert "TESSERA_RUN_TOP_K is 'many'" in one_line(done)
    assert call("version", TESSERA_RUN_TOP_K="many").returncode == 0


def test_a_closed_pipe_is_no_crash():
    command = [os.environ["TESSERA_BINARY"], "run", str(MODEL), "The city of", "-n", "200",
               "--ignore-eos"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert b"tessera:" not in process.stderr.read()
    process.stderr.close()


def test_a_full_disk_is_an_error():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run([os.environ["TESSERA_BINARY"], "inspect"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "could not be written" in done.stderr


def test_nothing_is_coloured_or_drawn_where_no_terminal_is():
    done = call("run", MODEL, "The city of", "-n", 4)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr


def test_version_is_a_number():
    assert call("version").stdout == call("--version").stdout
    assert call("version").stdout[0].isdigit()
