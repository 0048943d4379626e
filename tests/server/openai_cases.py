# Calls of the official client, run by test_openai.py in a Python that has it.
# Usage: openai_cases.py URL base|chat|limits
# SPDX-License-Identifier: MIT
import sys

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
    answer = create(**{**fields, "max_completion_tokens": 200}, response_format={
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 0, "maximum": 9}}})
    assert answer.choices[0].message.content in list("0123456789")


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
    {"base": base, "chat": chat, "limits": limits}[group](
        openai.OpenAI(base_url=url, api_key="right", max_retries=0))
    print(f"{group}: the client of openai {openai.__version__} is content")
