# Calls of the official client, run by test_openai.py in a Python that has it.
# Usage: openai_cases.py URL base|chat|embeddings|tools|structured|limits
# SPDX-License-Identifier: MIT
import array
import json
import math
import sys

import jsonschema
import openai


def raises(kind, call, **fields):
    try:
        call(**fields)
    except kind as error:
        return error
    raise AssertionError(f"{fields} did not raise {kind.__name__}")


def base(client):
    assert [one.id for one in client.models.list()] == ["tessera-13m"]
    assert client.models.retrieve("tessera-13m").object == "model"
    fields = {"model": "tessera-13m", "prompt": "The city of", "temperature": 0, "max_tokens": 12}
    create = client.completions.create
    whole = create(**fields)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12
    parts = list(create(**fields, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in parts if part.choices) == whole.choices[0].text
    assert parts[-1].usage.completion_tokens == 12
    scored = create(**fields, logprobs=3, echo=True, n=2)
    assert len(scored.choices) == 2 and len(scored.choices[0].logprobs.top_logprobs[-1]) == 3
    create(**fields, extra_body={"top_k": 5, "min_p": 0.1, "ignore_eos": True, "priority": 2,
                                 "cache_salt": "a", "repetition_penalty": 1.1, "min_tokens": 2})
    error = raises(openai.BadRequestError, create, **{**fields, "temperature": 50})
    assert error.param == "temperature" and "50" in error.message
    assert raises(openai.BadRequestError, create, **{**fields, "prompt": [5] * 3000}).code == \
        "context_length_exceeded"
    assert raises(openai.NotFoundError, create, **{**fields, "model": "gpt-4"}).code == \
        "model_not_found"
    raises(openai.NotFoundError, client.models.retrieve, model="other")
    raises(openai.BadRequestError, client.chat.completions.create, model="tessera-13m",
           messages=[{"role": "user", "content": "Hello"}])
    stream = create(**{**fields, "max_tokens": 1500}, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()


def chat(client):
    fields = {"model": client.models.list().data[0].id, "temperature": 0, "max_tokens": 10,
              "messages": [{"role": "system", "content": "Be short."},
                           {"role": "user", "content": "Where is Rome?"}]}
    create = client.chat.completions.create
    whole = create(**fields, logprobs=True, top_logprobs=2)
    message = whole.choices[0].message
    assert message.role == "assistant" and message.content
    assert len(whole.choices[0].logprobs.content) == 10
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    parts = list(create(**fields, stream=True))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == message.content
    assert parts[-1].choices[0].finish_reason == "length"
    many = create(**{**fields, "temperature": 1}, n=3, seed=4, max_completion_tokens=5)
    assert [one.index for one in many.choices] == [0, 1, 2]
    assert raises(openai.BadRequestError, create, **{**fields, "messages": []}).param == "messages"


def embeddings(client):
    create = client.embeddings.create
    fields = {"model": "tessera-13m"}
    one = create(input="The city of Rome", **fields)  # the client asks for base64
    vector = one.data[0].embedding
    assert len(vector) == 384 and abs(math.fsum(x * x for x in vector) - 1) < 1e-5
    plain = create(input="The city of Rome", encoding_format="float", **fields)
    single = array.array("f", plain.data[0].embedding).tolist()  # digits that tell floats apart
    assert single == vector
    texts = ["The city of Rome", "The town of Rome", "A theorem of algebra"]
    several = create(input=texts, **fields)
    assert [item.index for item in several.data] == [0, 1, 2]
    assert several.data[0].embedding == vector  # whatever else is in the batch
    assert several.usage.prompt_tokens == several.usage.total_tokens > one.usage.prompt_tokens

    def similarity(i, j):
        vectors = [several.data[place].embedding for place in (i, j)]
        return math.fsum(x * y for x, y in zip(*vectors))
    assert similarity(0, 1) > similarity(0, 2)
    last = create(input=texts[0], extra_body={"pooling": "last", "normalize": False}, **fields)
    assert abs(math.fsum(x * x for x in last.data[0].embedding) - 1) > 1e-3
    assert create(input=[[5, 6], [7]], **fields).usage.prompt_tokens == 3
    assert create(input=[5, 6], dimensions=384, **fields).usage.prompt_tokens == 2
    for wrong, param in (({"input": ""}, "input"), ({"input": []}, "input"),
                         ({"input": [5] * 3000}, "input"), ({"input": [99999]}, "input[0]"),
                         ({"input": "a", "dimensions": 7}, "dimensions"),
                         ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
                         ({"input": "a", "extra_body": {"pooling": "max"}}, "pooling")):
        error = raises(openai.BadRequestError, create, **fields, **wrong)
        assert error.param == param, (wrong, error.param)
    raises(openai.NotFoundError, create, model="gpt-4", input="a")


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city", "parameters": {
        "type": "object", "additionalProperties": False, "required": ["city", "unit"],
        "properties": {"city": {"enum": ["Rome", "Paris"]}, "unit": {"$ref": "#/$defs/unit"}},
        "$defs": {"unit": {"enum": ["C", "F"]}}}}}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}}


def join_stream(parts):
    """Content, calls and the finish reason of a stream, as a client puts them together."""
    content, calls, reason = "", {}, None
    for part in parts:
        choice = part.choices[0]
        content += choice.delta.content or ""
        for delta in choice.delta.tool_calls or []:
            if delta.id:
                assert delta.index not in calls and delta.type == "function"
                calls[delta.index] = [delta.id, delta.function.name, ""]
            calls[delta.index][2] += delta.function.arguments or ""
        reason = choice.finish_reason or reason
    return content, [calls[i] for i in sorted(calls)], reason


def tools(client):
    create = client.chat.completions.create
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    fields = {"model": client.models.list().data[0].id, "messages": messages, "temperature": 1,
              "seed": 5, "max_tokens": 300, "tools": [WEATHER, CLOCK]}
    forced = {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    for choice in (forced, {"tool_choice": "required", "parallel_tool_calls": False}):
        whole = create(**fields, **choice).choices[0]
        assert whole.finish_reason == "tool_calls" and whole.message.content is None
        call = whole.message.tool_calls[0]
        schemas = {tool["function"]["name"]: tool["function"]["parameters"]
                   for tool in (WEATHER, CLOCK)}
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
        content, calls, reason = join_stream(create(**fields, **choice, stream=True))
        assert (content, reason) == ("", "tool_calls")
        assert calls[0][1:] == [call.function.name, call.function.arguments]
    # What the model says of its own accord is parsed as it arrives; a pattern makes it say this.
    said = 'Let me see. <tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    pattern = "".join(c if c.isalnum() or c in ' "<>:,/_' else "\\" + c for c in said)
    spoken = {"extra_body": {"guided_regex": pattern}}
    whole = create(**fields, tool_choice="auto", **spoken).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content == "Let me see. "
    assert whole.message.tool_calls[0].function.name == "get_time"
    content, calls, reason = join_stream(create(**fields, **spoken, stream=True))
    assert (content, reason) == ("Let me see. ", "tool_calls")
    assert calls[0][1:] == ["get_time", "{}"]
    # Without tools the same words are text.
    plain = create(**fields, tool_choice="none", **spoken).choices[0]
    assert plain.message.content == said and plain.finish_reason == "stop"
    assert not plain.message.tool_calls
    # The answer of a tool goes back through the template.
    messages += [whole.message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": whole.message.tool_calls[0].id,
                  "content": "12:00"}]
    after = create(**{**fields, "max_tokens": 4})
    assert after.usage.prompt_tokens > create(**{**fields, "messages": messages[:1],
                                                 "max_tokens": 4}).usage.prompt_tokens
    for wrong, param in (({"tools": [{"type": "function"}]}, "tools[0]"),
                         ({"tool_choice": {"type": "function", "function": {"name": "no"}}},
                          "tool_choice"), ({"tool_choice": "sometimes"}, "tool_choice"),
                         ({"tools": [], "tool_choice": "required"}, "tool_choice")):
        assert raises(openai.BadRequestError, create, **{**fields, **wrong}).param == param


def structured(client):
    create = client.chat.completions.create
    fields = {"model": client.models.list().data[0].id, "temperature": 1, "seed": 2,
              "max_completion_tokens": 300, "messages": [{"role": "user", "content": "A person"}]}
    schema = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
              "properties": {"name": {"type": "string", "maxLength": 12},
                             "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema,
                                                   "strict": True}}
    whole = create(**fields, response_format=form).choices[0]
    assert whole.finish_reason == "stop"
    jsonschema.validate(json.loads(whole.message.content), schema)
    parts = create(**fields, response_format=form, stream=True)
    assert join_stream(parts)[0] == whole.message.content
    free = create(**fields, response_format={"type": "json_object"}, n=2)
    assert all(one.finish_reason == "length" or isinstance(json.loads(one.message.content), dict)
               for one in free.choices)
    chosen = create(**fields, extra_body={"guided_choice": ["yes", "no"]})
    assert chosen.choices[0].message.content in ("yes", "no")
    wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}
    error = raises(openai.BadRequestError, create, **fields, response_format=wrong)
    assert error.param == "response_format"


def limits(client):
    fields = {"model": "tessera-13m", "prompt": "The", "max_tokens": 1500}
    wrong = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, wrong.completions.create, **fields)
    kept = client.completions.create(**fields, stream=True, extra_body={"ignore_eos": True})
    next(iter(kept))
    raises(openai.RateLimitError, client.completions.create, **fields)
    kept.close()


if __name__ == "__main__":
    url, group = sys.argv[1:]
    groups = {"base": base, "chat": chat, "embeddings": embeddings, "tools": tools,
              "structured": structured, "limits": limits}
    groups[group](openai.OpenAI(base_url=url, api_key="right", max_retries=0))
    print(f"{group}: the client of openai {openai.__version__} is content")
