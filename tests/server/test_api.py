# What the routes answer.
# SPDX-License-Identifier: MIT
import json
import re

import pytest
from conftest import MODEL, serving


def text_of(answer):
    return answer["choices"][0]["text"]


def test_a_completion_is_the_models_greedy_text(server):
    oracle = json.loads((MODEL / "oracle.json").read_text())
    answer = server.complete("The city of", max_tokens=8)
    assert answer["object"] == "text_completion" and answer["model"] == "tessera-13m"
    assert answer["choices"][0]["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    assert text_of(answer) and isinstance(oracle, dict | list)


def test_every_form_of_a_prompt_gives_the_same_text(server):
    ids = server.call("POST", "/tokenize", {"prompt": "The city of"})[1]["tokens"]
    expected = text_of(server.complete("The city of"))
    for prompt in (["The city of"], ids, [ids]):
        assert text_of(server.complete(prompt)) == expected
    several = server.complete(["The city of", "In the year"], n=2, temperature=0)
    assert [one["index"] for one in several["choices"]] == [0, 1, 2, 3]
    assert several["choices"][0]["text"] == several["choices"][1]["text"] == expected


def test_a_stream_gives_the_text_of_the_whole_answer(server):
    whole = server.complete("The city of", max_tokens=24)
    events = server.stream(prompt="The city of", temperature=0, max_tokens=24,
                           stream_options={"include_usage": True})
    last = events.pop()
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 24
    assert all(event["usage"] is None for event in events)
    assert "".join(event["choices"][0]["text"] for event in events) == text_of(whole)
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-1])


def test_echo_and_logprobs_cover_prompt_and_text(server):
    answer = server.complete("The city of", echo=True, logprobs=2, max_tokens=3)
    choice = answer["choices"][0]
    assert choice["text"].startswith("The city of")
    logprobs = choice["logprobs"]
    num_tokens = answer["usage"]["total_tokens"]
    assert [len(logprobs[name]) for name in
            ("tokens", "token_logprobs", "top_logprobs", "text_offset")] == [num_tokens] * 4
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(value < 0 for value in logprobs["token_logprobs"][1:])
    assert len(logprobs["top_logprobs"][-1]) == 2
    assert max(logprobs["top_logprobs"][-1].values()) == logprobs["token_logprobs"][-1]
    scored = server.complete("The city of", echo=True, logprobs=0, max_tokens=0)
    assert scored["choices"][0]["text"] == "The city of"
    assert scored["choices"][0]["logprobs"]["token_logprobs"] == \
        logprobs["token_logprobs"][:len(scored["choices"][0]["logprobs"]["tokens"])]


def test_stops_seeds_and_biases_are_kept(server):
    text = text_of(server.complete("The city of", max_tokens=16))
    stop = text.split()[1]
    ended = server.complete("The city of", max_tokens=16, stop=stop)
    assert text_of(ended) == text[:text.index(stop)]
    assert ended["choices"][0]["finish_reason"] == "stop"
    drawn = [text_of(server.complete("The city of", temperature=1, seed=seed, max_tokens=16))
             for seed in (5, 5, -1, 2**64 - 1)]
    assert drawn[0] == drawn[1] and drawn[2] == drawn[3] and drawn[0] != drawn[2]
    token = server.call("POST", "/tokenize", {"prompt": " king", "add_special_tokens": False})
    biased = server.complete("The", logit_bias={str(token[1]["tokens"][0]): 100}, max_tokens=3)
    assert text_of(biased) == " king king king"


def test_best_of_returns_the_most_probable(server):
    answer = server.complete("The", n=1, best_of=4, temperature=1, seed=3, max_tokens=6, logprobs=0)
    all_four = server.complete("The", n=4, temperature=1, seed=3, max_tokens=6, logprobs=0)
    def mean(choice):
        values = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)
    assert len(answer["choices"]) == 1
    assert mean(answer["choices"][0]) == max(map(mean, all_four["choices"]))
    assert answer["usage"]["completion_tokens"] == 24


def test_a_deadline_ends_an_answer(server):
    answer = server.complete("The", max_tokens=2000, ignore_eos=True, timeout=0.05)
    assert answer["choices"][0]["finish_reason"] == "timeout"
    assert answer["usage"]["completion_tokens"] < 2000


def test_chat_uses_the_template(chat_server):
    messages = [{"role": "user", "content": "Where is the city of Rome?"}]
    fields = {"messages": messages, "temperature": 0, "max_tokens": 12}
    status, answer = chat_server.call("POST", "/v1/chat/completions", fields)
    assert status == 200 and answer["object"] == "chat.completion"
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant"
    same = chat_server.complete("user: Where is the city of Rome?\nassistant:", max_tokens=12)
    assert message["content"] == text_of(same)
    parts = [{"type": "text", "text": "Where is the "}, {"type": "text", "text": "city of Rome?"}]
    fields["messages"] = [{"role": "user", "content": parts}]
    assert chat_server.call("POST", "/v1/chat/completions", fields)[1]["choices"] == \
        answer["choices"]
    events = chat_server.stream("/v1/chat/completions", **fields, logprobs=True, top_logprobs=2)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[0]["object"] == "chat.completion.chunk"
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == \
        message["content"]
    listed = [entry for event in events if event["choices"][0]["logprobs"]
              for entry in event["choices"][0]["logprobs"]["content"]]
    assert len(listed) == 12 and all(len(entry["top_logprobs"]) == 2 for entry in listed)
    tokens = chat_server.call("POST", "/tokenize", {"messages": messages})[1]
    assert tokens["count"] == answer["usage"]["prompt_tokens"]


def test_a_base_model_has_no_chat(server):
    status, answer = server.call("POST", "/v1/chat/completions",
                                 {"messages": [{"role": "user", "content": "Hello"}]})
    assert status == 400 and "/v1/completions" in answer["error"]["message"]


def test_tokenize_and_detokenize_are_inverse(server):
    text = "Zürich, 東京 and 🙂\u0000."
    answer = server.call("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})[1]
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 2048
    back = server.call("POST", "/detokenize", {"tokens": answer["tokens"]})[1]
    assert back == {"prompt": text}


def test_the_server_describes_itself(server):
    status, models = server.call("GET", "/v1/models")
    assert status == 200 and [one["id"] for one in models["data"]] == ["tessera-13m"]
    assert server.call("GET", "/v1/models/tessera-13m")[1] == models["data"][0]
    assert server.call("GET", "/health") == (200, {"status": "ok"})
    assert set(server.call("GET", "/version")[1]) == {"version", "commit"}
    assert server.call("GET", "/openapi.json")[1]["openapi"].startswith("3.")


def test_metrics_count_what_happens(server):
    server.wait_until_idle()
    before = server.metrics()
    server.complete("Something that was not asked before", max_tokens=5)
    server.wait_until_idle()
    after = server.metrics()
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 5
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                 "request_queue_time_seconds", "request_prefill_time_seconds",
                 "request_decode_time_seconds"):
        assert after[name + "_count"] - before.get(name + "_count", 0) == 1, name
    assert after["inter_token_latency_seconds_count"] - \
        before["inter_token_latency_seconds_count"] == 4
    assert after["num_requests_running"] == 0 and after["kv_cache_usage_perc"] == 0


def test_the_page_is_one_file_with_a_strict_policy(server):
    status, headers, text = server.call_raw("GET", "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    nonce = policy.split("'nonce-")[1].split("'")[0].encode()
    assert b'<script nonce="' + nonce + b'">' in text and b"@NONCE@" not in text
    assert b"innerHTML" not in text and b"//cdn" not in text and b"https://" not in text
    assert server.call_raw("GET", "/")[1]["Content-Security-Policy"] != policy


def test_head_gives_the_headers_alone(server):
    status, headers, text = server.call_raw("HEAD", "/health")
    assert status == 200 and text == b"" and int(headers["Content-Length"]) > 0


def test_a_name_of_its_own(tiny_model):
    with serving("--name", "small one", model=tiny_model) as one:
        assert one.call("GET", "/v1/models")[1]["data"][0]["id"] == "small one"
        assert one.complete(model="small one")["model"] == "small one"


def test_random_weights_are_served_by_their_shape():
    with serving("--shape", "tessera-13m", model=None) as one:
        assert one.call("GET", "/v1/models")[1]["data"][0]["id"] == "tessera-13m"
        events = one.stream(prompt=[300, 301], max_tokens=20, ignore_eos=True, temperature=0)
        assert len(events) == 20  # every token has a text, so that clients can count them
        assert one.complete("a text", max_tokens=1)["usage"]["prompt_tokens"] == 6
        assert one.call("POST", "/detokenize", {"tokens": [300]})[1]["prompt"] == " w300"


@pytest.mark.parametrize("field, value, pattern", [
    ("guided_regex", "(yes|no)!", r"(yes|no)!"),
    ("guided_choice", ["red", "green"], r"red|green"),
    ("guided_json", {"type": "boolean"}, r"true|false"),
    ("guided_grammar", 'root ::= "a" [0-9]', r"a[0-9]"),
    ("structured_outputs", {"regex": "[a-c]{4}"}, r"[a-c]{4}"),
    ("response_format", {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"enum": ["one", 2]}}}, r'"one"|2'),
])
def test_an_answer_keeps_to_its_constraint(server, field, value, pattern):
    body = {"prompt": "Say:", "max_tokens": 40, "temperature": 1, "seed": 3, field: value}
    status, answer = server.call("POST", "/v1/completions", body)[:2]
    assert status == 200, answer
    choice = answer["choices"][0]
    assert re.fullmatch(pattern, choice["text"]) and choice["finish_reason"] == "stop"


def test_a_schema_that_is_not_supported_is_refused(server):
    status, answer = server.call("POST", "/v1/completions", {
        "prompt": "a", "guided_json": {"type": "string", "pattern": "(?=a)"}})[:2]
    assert status == 400 and "guided_json" in answer["error"]["message"]
