# Structured output on the command line, with the bundled model.
# SPDX-License-Identifier: MIT
import json
import re

import pytest

from conftest import MODEL, call, call_json

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12},
                   "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
}
FLAGS = ["run", MODEL, "A person:", "-n", 64, "--json", "--seed"]


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_as_text_or_file(tmp_path, seed):
    file = tmp_path / "person.json"
    file.write_text(json.dumps(SCHEMA))
    answer = call_json(*FLAGS, seed, "--json-schema", json.dumps(SCHEMA))
    assert answer["finish"] == "stop"
    person = json.loads(answer["text"])
    assert set(person) == {"name", "age"} and 0 <= person["age"] <= 120
    assert call_json(*FLAGS, seed, "--json-schema", file)["text"] == answer["text"]


def test_an_expression_a_choice_and_a_grammar(tmp_path):
    pattern = "[A-Z][a-z]{2,9} [0-9]{4}"
    assert re.fullmatch(pattern, call_json(*FLAGS, 1, "--regex", pattern)["text"])
    choices = [flag for word in ("red", "green", "blue") for flag in ("--choice", word)]
    assert call_json(*FLAGS, 1, *choices)["text"] in ("red", "green", "blue")
    file = tmp_path / "sum.ebnf"
    file.write_text('root ::= term (" + " term){1,3}\nterm ::= [0-9]{1,3} | "(" root ")"\n')
    answer = call_json(*FLAGS, 1, "--grammar", file)
    assert answer["finish"] == "length" or " + " in answer["text"]


def test_several_outputs_obey(tmp_path):
    answer = call_json(*FLAGS, 5, "--num-outputs", 3, "--regex", "[0-9]{2}:[0-9]{2}")
    assert all(re.fullmatch("[0-9]{2}:[0-9]{2}", one["text"]) for one in answer["outputs"])


@pytest.mark.parametrize("flags, words", [
    (["--regex", "(a"], "'(' without ')'"),
    (["--json-schema", '{"not": {}}'], "keyword 'not' is not supported"),
    (["--choice", "a", "--regex", "b"], "give one of --json-schema"),
    (["--choice", "a", "--beam", 2], "is not for --beam > 0"),
    (["--json-object", "--json-whitespace", 1000], "max_whitespace is 1000"),
])
def test_mistakes_are_refused_by_name(flags, words):
    done = call("run", MODEL, "x", *flags)
    assert done.returncode == 2
    assert words in done.stderr
