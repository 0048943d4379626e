# The class LLM on the bundled model: the same text whole, streamed, awaited and from threads.
# SPDX-License-Identifier: MIT
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tessera
from tessera import LLM, SamplingParams

ROOT = Path(__file__).resolve().parents[2]
GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["The history of", "Water is", "In the year"]


@pytest.fixture(scope="module")
def llm():
    with LLM(device="cpu", dtype="f32", context=256, max_batch=8) as made:
        yield made


@pytest.fixture(scope="module")
def texts(llm):
    """What each prompt gives, one at a time."""
    return [llm.generate(prompt, GREEDY)[0].text for prompt in PROMPTS]


def test_generates_many_at_once_in_their_order(llm, texts):
    results = llm.generate(PROMPTS, GREEDY)
    assert [result.text for result in results] == texts
    assert [result.prompt for result in results] == PROMPTS
    first = results[0]
    assert len(first.tokens) == 12 and first.finish_reason == "length"
    assert first.usage.completion_tokens == 12
    assert first.usage.total_tokens == first.usage.prompt_tokens + 12
    assert llm.generate([], GREEDY) == []


def test_takes_tokens_and_keywords_and_params_for_each(llm, texts):
    ids = llm.tokenizer.encode(PROMPTS[0])
    assert llm.generate(ids, GREEDY)[0].text == texts[0]
    assert llm.generate([ids, PROMPTS[1]], temperature=0, max_tokens=12)[1].text == texts[1]
    each = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=3)]
    assert [len(one.tokens) for one in llm.generate(PROMPTS[:2], each)] == [2, 3]


def test_a_seed_repeats_itself(llm):
    sampled = [llm.generate("Water", seed=7, max_tokens=8)[0].text for _ in range(2)]
    assert sampled[0] == sampled[1]
    several = llm.generate("Water", seed=7, max_tokens=8, n=3)[0].outputs
    assert several[0].text == sampled[0]
    assert [one.index for one in several] == [0, 1, 2]
    assert len({one.text for one in several}) > 1


def test_stops_at_texts_and_tokens(llm, texts):
    end = texts[0][4:8]
    assert llm.generate(PROMPTS[0], GREEDY, stop=end)[0].text == texts[0][: texts[0].index(end)]
    tokens = llm.generate(PROMPTS[0], GREEDY)[0].tokens
    stopped = llm.generate(PROMPTS[0], GREEDY, stop_tokens=[tokens[3]])[0]
    assert stopped.finish_reason == "stop" and stopped.tokens == tokens[:4]


def test_logit_bias_and_beams(llm):
    token = llm.tokenizer.encode(" water", add_special_tokens=False)[0]
    biased = llm.generate("The", GREEDY, logit_bias={token: 100.0}, max_tokens=2)[0]
    assert biased.tokens == [token, token]
    beams = llm.generate("The", beam_width=3, n=2, max_tokens=5)[0].outputs
    assert beams[0].score >= beams[1].score


def test_streams_the_same_text(llm, texts):
    deltas = list(llm.stream(PROMPTS[0], GREEDY))
    assert "".join(delta.text for delta in deltas) == texts[0]
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason == "length"
    assert deltas[-1].usage.completion_tokens == 12


def test_leaving_a_stream_cancels_it(llm):
    before = llm.stats()["num_cancelled"]
    for _ in llm.stream("The", temperature=0, max_tokens=240, ignore_eos=True):
        break
    deadline = time.monotonic() + 30
    while llm.stats()["num_cancelled"] == before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert llm.stats()["num_cancelled"] == before + 1


def test_streams_for_asyncio(llm, texts):
    async def one(prompt):
        return "".join([delta.text async for delta in llm.astream(prompt, GREEDY)])

    async def all_of_them():
        return await asyncio.gather(*(one(prompt) for prompt in PROMPTS * 20))

    assert asyncio.run(all_of_them()) == texts * 20


def test_threads_share_a_model(llm, texts):
    found = {}

    def ask(i):
        found[i] = llm.generate(PROMPTS[i % 3], GREEDY)[0].text

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: texts[i % 3] for i in range(9)}


def test_scores_what_it_would_generate(llm):
    made = llm.generate(PROMPTS[0], GREEDY, logprobs=2)[0]
    assert len(made.logprobs) == 12
    for one in made.logprobs:
        assert len(one.top) == 2 and list(one.top)[0] == one.token
        assert one.top[one.token] == pytest.approx(one.logprob, abs=1e-5)
    (score,) = llm.score([llm.tokenizer.encode(PROMPTS[0]) + made.tokens])
    want = [one.logprob for one in made.logprobs]
    assert score.logprobs[-12:] == pytest.approx(want, abs=2e-3)
    (tail,) = llm.score(" mathematics", context=PROMPTS[0])
    (whole,) = llm.score(PROMPTS[0] + " mathematics")
    assert tail.logprobs == pytest.approx(whole.logprobs[-len(tail.tokens) :], abs=1e-5)
    assert whole.perplexity > 1 and whole.total == pytest.approx(sum(whole.logprobs))


def test_embeds(llm):
    vectors = llm.embed(PROMPTS)
    assert len(vectors) == 3 and {len(vector) for vector in vectors} == {384}
    for vector in vectors:
        assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
    assert llm.embed(PROMPTS[1]) == [vectors[1]]  # the same alone, bit for bit
    ids = llm.tokenizer.encode(PROMPTS[0])
    (mean,) = llm.embed([ids], pooling="mean", normalize=False)
    each = [llm.embed([ids[: i + 1]], normalize=False)[0] for i in range(len(ids))]
    want = [sum(column) / len(ids) for column in zip(*each)]
    assert mean == pytest.approx(want, abs=1e-4)
    near, far = llm.embed(["Water is a liquid.", "The war ended in 1945."], pooling="mean")
    (close,) = llm.embed("Water is a kind of liquid.", pooling="mean")
    assert sum(a * b for a, b in zip(near, close)) > sum(a * b for a, b in zip(far, close))
    assert llm.embed([]) == []


def test_tokenizer_goes_there_and_back(llm):
    tokenizer = llm.tokenizer
    for text in ["", "The history of", "naïve café 東京 🙂", "a\0b", "x" * 3000]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
    ids = tokenizer.encode("Water")
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Water"
    name = tokenizer.token(tokenizer.bos_token_id)
    assert tokenizer.encode(name, add_special_tokens=False, allow_special=True) == ids[:1]
    assert len(tokenizer.encode(name, add_special_tokens=False)) > 1


def make_chat_model(folder):
    """The bundled model with a chat template."""
    shutil.copytree(tessera.default_model(), folder, dirs_exist_ok=True)
    template = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if tools %}tools: {{ tools | length }}\n{% endif %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_chats_through_the_template(tmp_path, llm):
    messages = [{"role": "user", "content": "Tell me of <|begin_of_text|>"}]
    with LLM(make_chat_model(tmp_path), device="cpu", dtype="f32", context=128) as chat:
        text = chat.tokenizer.apply_chat_template(messages, tokenize=False)
        assert text == "<|begin_of_text|>user: Tell me of <|begin_of_text|>\nassistant:"
        ids = chat.tokenizer.apply_chat_template(messages)
        assert ids.count(chat.tokenizer.bos_token_id) == 1  # what users write is plain text
        with_tools = chat.tokenizer.apply_chat_template(messages, tokenize=False, tools=[{}, {}])
        assert "tools: 2" in with_tools
        answer = chat.chat(messages, GREEDY)[0]
        assert answer.text == chat.generate(ids, GREEDY)[0].text
        assert len(chat.chat([messages, messages], GREEDY)) == 2
        streamed = "".join(delta.text for delta in chat.stream(messages, GREEDY))
        assert streamed == answer.text
    with pytest.raises(tessera.Error, match="no chat template"):
        llm.chat(messages)


def test_formats_and_speculation_are_options(texts):
    with LLM(device="cpu", dtype="f32", context=256, max_batch=2, speculate="lookup") as model:
        assert model.generate(PROMPTS[0], GREEDY)[0].text == texts[0]
    with LLM(device="cpu", context=256, max_batch=2, weights="int8", kv="int8") as model:
        assert len(model.generate(PROMPTS[0], GREEDY)[0].tokens) == 12


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda llm: llm.generate("a", colour=1), "unknown settings: colour"),
        (lambda llm: llm.generate("a", top_p=7), "top_p is 7"),
        (lambda llm: llm.generate("a", max_tokens=0), "max_tokens is 0"),
        (lambda llm: llm.generate("a", n=1000), "n is 1000"),
        (lambda llm: llm.generate(["a", "b"], [SamplingParams()]), "1 SamplingParams for 2"),
        (lambda llm: llm.generate("a", seed=-1), "seed is -1"),
        (lambda llm: llm.generate("a", temperature="hot"), "temperature is 'hot'"),
        (lambda llm: llm.generate([[10**9]]), "1000000000"),
        (lambda llm: llm.generate("\ud800"), "not Unicode"),
        (lambda llm: llm.chat(["hello"]), "no conversation"),
        (lambda llm: llm.score([[5]]), "no token to score"),
        (lambda llm: llm.embed("a", pooling="max"), "pooling is 'max'"),
        (lambda llm: llm.embed([[]]), "prompt"),
        (lambda llm: llm.tokenizer.decode([-1]), "no token -1"),
        (lambda llm: LLM("/nowhere"), "/nowhere"),
        (lambda llm: LLM(weights="int3", device="cpu"), "weights is 'int3'"),
        (lambda llm: LLM(activations="4bit", device="cpu"), "activations is '4bit'"),
        (lambda llm: LLM(device=3), "device is 3"),
        (lambda llm: LLM(context=-1), "-1"),
    ],
)
def test_refusals_name_the_value(llm, call, words):
    with pytest.raises(tessera.Error, match=words):
        call(llm)


def test_a_closed_model_says_so():
    model = LLM(device="cpu", context=64, max_batch=1)
    stream = model.stream("The", max_tokens=50)
    model.close()
    model.close()
    assert [delta.finish_reason for delta in stream][-1] in ("cancelled", "length", "stop")
    with pytest.raises(tessera.Error, match="closed"):
        model.generate("The")
    with pytest.raises(tessera.Error, match="closed"):
        model.tokenizer.encode("The")


def test_a_forgotten_model_is_freed_at_once():
    model = LLM(device="cpu", context=64, max_batch=1)
    model.tokenizer.encode("The")
    model.generate("The", max_tokens=1)
    destroy = model._destroy
    del model
    assert not destroy.alive


def test_progress_is_shown_and_wiped_away(llm, capfd):
    llm.generate(PROMPTS, GREEDY, progress=True)
    shown = capfd.readouterr().err
    assert "of 3 prompts" in shown and "tokens" in shown and shown.endswith("\r\x1b[K")
    llm.generate(PROMPTS, GREEDY, progress=False)
    assert capfd.readouterr().err == ""


def test_other_threads_run_while_one_waits(llm):
    """The lock of Python is free while a call computes."""
    turns = 0
    done = threading.Event()

    def wait():
        llm.generate(PROMPTS, temperature=0, max_tokens=60, ignore_eos=True)
        done.set()

    thread = threading.Thread(target=wait)
    begin = time.monotonic()
    thread.start()
    while not done.is_set():
        time.sleep(0.001)
        turns += 1
    thread.join()
    assert turns > 50 * (time.monotonic() - begin)


def test_an_async_stream_that_is_left_is_cancelled(llm):
    async def leave():
        stream = llm.astream("The", temperature=0, max_tokens=240, ignore_eos=True)
        async for _ in stream:
            break
        await stream.aclose()

        async def wait_for_ever():
            async for _ in llm.astream("The", temperature=0, max_tokens=240, ignore_eos=True):
                pass

        task = asyncio.create_task(wait_for_ever())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = llm.stats()["num_cancelled"]
    asyncio.run(leave())
    deadline = time.monotonic() + 30
    while llm.stats()["num_cancelled"] < before + 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert llm.stats()["num_cancelled"] == before + 2


INTERRUPTED = """
import tessera
with tessera.LLM(device="cpu", context=512, max_batch=2) as llm:
    print("ready", flush=True)
    try:
        llm.generate(["The"] * 50, max_tokens=500, ignore_eos=True)
    except KeyboardInterrupt:
        print("stopped", llm.generate("The", max_tokens=2)[0].finish_reason, flush=True)
"""


def test_ctrl_c_stops_a_generation():
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    command = [sys.executable, "-B", "-c", INTERRUPTED]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "stopped length\n" and process.returncode == 0
