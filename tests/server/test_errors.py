# Requests that are wrong: the status, the field and the message.
# SPDX-License-Identifier: MIT
import json

import pytest
from conftest import serving, start_long

GOOD = {"prompt": "The", "max_tokens": 2}


def refused(server, body, path="/v1/completions", status=400):
    found, answer = server.call("POST", path, body)
    assert found == status, answer
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[1]", b'"text"', b'{"prompt": "a',
                                  b'{"prompt": NaN}', b'{"prompt": "\xff\xfe"}',
                                  b'{"prompt": "\\ud800"}', b"\x00" * 10, b'{"prompt": 1e999}'])
def test_a_body_that_is_not_an_object_is_refused_and_the_connection_goes_on(server, body):
    connection = server.connect()
    for _ in range(2):
        connection.request("POST", "/v1/completions", body)
        response = connection.getresponse()
        assert response.status == 400
        assert json.loads(response.read())["error"]["type"] == "invalid_request_error"
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    connection.close()


def test_deep_nesting_is_refused_without_following_it(server):
    for text in ('{"prompt": ' + "[" * 100000, '{"a":' * 100000,
                 '{"prompt": ' + "[" * 65 + "]" * 65 + "}"):
        assert "64 levels" in refused(server, text)["message"]


def test_an_unknown_model_is_named_with_the_served_one(server):
    error = refused(server, {**GOOD, "model": "gpt-4"}, status=404)
    assert error["code"] == "model_not_found" and error["param"] == "model"
    assert "gpt-4" in error["message"] and "tessera-13m" in error["message"]
    assert server.call("GET", "/v1/models/gpt-4")[0] == 404


@pytest.mark.parametrize("change, param", [
    ({"prompt": None}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": []}, "prompt"),
    ({"prompt": {}}, "prompt"), ({"prompt": ["a", ""]}, "prompt"), ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"prompt": [-1]}, "prompt[0]"), ({"prompt": [1, 10**6]}, "prompt[1]"),
    ({"prompt": [1, 2.5]}, "prompt[1]"), ({"prompt": [2**63]}, "prompt[0]"),
    ({"prompt": [[1], [1, "x"]]}, "prompt[1][1]"),
    ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"), ({"max_tokens": "many"}, "max_tokens"),
    ({"n": 10**6}, "n"), ({"n": 0}, "n"), ({"best_of": 65}, "best_of"),
    ({"n": 3, "best_of": 2}, "best_of"), ({"best_of": 2, "stream": True}, "best_of"),
    ({"logprobs": 10**6}, "logprobs"), ({"logprobs": -1}, "logprobs"),
    ({"temperature": -1}, "temperature"), ({"temperature": 100}, "temperature"),
    ({"temperature": "hot"}, "temperature"), ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"),
    ({"top_k": -5}, "top_k"), ({"min_p": 2}, "min_p"), ({"typical_p": 0}, "typical_p"),
    ({"presence_penalty": 1e30}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"stop": ["a"] * 17}, "stop"), ({"stop": "a" * 257}, "stop"), ({"stop": ""}, "stop"),
    ({"stop": [1]}, "stop[0]"), ({"stop": ["x"] * 10000}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"logit_bias": {"a": 1}}, "logit_bias"), ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"logit_bias": {"1": "x"}}, "logit_bias"), ({"logit_bias": [1]}, "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias"),
    ({"seed": 1.5}, "seed"), ({"stream": "yes"}, "stream"), ({"echo": 1}, "echo"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"suffix": "end"}, "suffix"), ({"timeout": 0}, "timeout"), ({"timeout": -1}, "timeout"),
    ({"min_tokens": -1}, "min_tokens"), ({"priority": "high"}, "priority"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"guided_regex": 3}, "guided_regex"), ({"guided_choice": "a"}, "guided_choice"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"tools": [{"type": "function"}]}, "tools"),
])
def test_a_wrong_field_is_named(server, change, param):
    error = refused(server, {**GOOD, **change})
    assert error["param"] == param and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("messages", [None, [], "hello", [1], [{"content": "a"}],
                                      [{"role": "user", "content": 5}],
                                      [{"role": "user", "content": [{"type": "image_url"}]}]])
def test_wrong_messages_are_refused(chat_server, messages):
    error = refused(chat_server, {"messages": messages}, "/v1/chat/completions")
    assert error["param"].startswith("messages")


def test_top_logprobs_need_logprobs(chat_server):
    fields = {"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}
    assert refused(chat_server, fields, "/v1/chat/completions")["param"] == "top_logprobs"
    fields.update(logprobs=True, top_logprobs=21)
    assert refused(chat_server, fields, "/v1/chat/completions")["param"] == "top_logprobs"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(server, stream):
    error = refused(server, {"prompt": [5] * 2048, "stream": stream})
    assert error["code"] == "context_length_exceeded"
    assert "2048" in error["message"]


def test_large_numbers_are_cut_to_the_context(server):
    for huge in (10**18, 2**64 - 1):
        answer = server.complete([5] * 2040, max_tokens=huge, ignore_eos=True)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 8


def test_unknown_fields_are_ignored_and_logged_and_the_last_of_equal_keys_counts():
    with serving() as one:
        assert one.complete(colour="green", top_a=3)
        assert '"fields":["colour","top_a"]' in one.errors()
        text = '{"prompt": "The", "max_tokens": 1, "max_tokens": 3}'
        assert one.call("POST", "/v1/completions", text)[1]["usage"]["completion_tokens"] == 3


def test_special_tokens_in_a_users_text_stay_text(server):
    plain = server.call("POST", "/tokenize", {"prompt": "a"})[1]["tokens"]
    end = server.call("POST", "/detokenize", {"tokens": [1]})[1]["prompt"]
    written = server.call("POST", "/tokenize", {"prompt": end})[1]["tokens"]
    assert 1 not in written[len(plain) - 1:]


def test_methods_and_paths(server):
    assert server.call("GET", "/v1/completions")[0] == 405
    assert server.call("POST", "/health")[0] == 405
    for path in ("/v1/completions/", "/v2", "//", "/v1/models/", "/../etc/passwd"):
        status, answer = server.call("GET", path)
        assert status == 404 and answer["error"]["type"] == "not_found_error"


def test_messages_have_no_paths_addresses_or_prompts():
    secret = "xyzzy-secret-words"
    with serving() as one:
        for change in ({"temperature": -1}, {"stop": ["a"] * 17}, {"prompt": [secret, 3]}):
            message = refused(one, {"prompt": secret, **change})["message"]
            assert "/" not in message.replace("/v1/", "") and "0x" not in message
            assert secret not in message
        one.complete(secret)
        one.wait_until_idle()
        assert secret not in one.errors()
    with serving("--log-prompts") as one:
        one.complete(secret)
        one.wait_until_idle()
        one.wait_for(lambda: secret in one.errors())


def test_a_refusal_reaches_nobody_else(server):
    long = start_long(server, 200)
    refused(server, {**GOOD, "n": 10**6})
    text = long.getresponse().read()
    assert text.endswith(b"data: [DONE]\n\n")
    long.close()
