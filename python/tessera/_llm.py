# A model to ask: prompts in, texts out, many at a time.
# SPDX-License-Identifier: MIT
"""The class LLM, over the engine of libtessera."""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import math
import os
import threading
import time
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Sequence, Union, cast

from ._engine_types import CEngineInfo, EngineOptions, EngineStats, LoadFunction
from ._generation import POLL_SECONDS, POOLINGS, Generation, check, is_conversation
from ._generation import make_requests, raise_renamed, utf8
from ._library import Error, lib, whole
from ._progress import Progress
from ._results import Delta, Message, Prompt, Result, SamplingParams, Score
from ._tokenizer import Tokenizer

_MODEL = Path("models") / "tessera-13m"


def default_model() -> str:
    """The folder in $TESSERA_MODEL, or the model bundled with the package or its checkout."""
    named = os.environ.get("TESSERA_MODEL")
    if named:
        return named
    package = Path(__file__).resolve().parent
    for place in (package / _MODEL, package.parents[1] / _MODEL):
        if (place / "config.json").exists():
            return str(place)
    raise Error("LLM: no folder is given, and there is no bundled model; give a model's folder")


def _prompts_of(prompts: Union[Prompt, Sequence[Prompt]]) -> List[Prompt]:
    """One prompt or several, as a list."""
    if isinstance(prompts, str) or is_conversation(prompts):
        return [cast(Prompt, prompts)]
    many = list(cast(Sequence[Any], prompts))
    if many and all(isinstance(one, int) for one in many):
        return [many]
    return many


class LLM:
    """A model folder in Hugging Face format, loaded and ready.

    Methods may be called from any thread; requests of all threads run together. Close it, or use
    it in a `with` block, to free its memory early.

    weights: "stored" or a quantised format such as "int8". activations: what 8-bit weights are
    multiplied by, "plain", "8bit" or "auto" (as the checkpoint asks, and codes on a GPU if
    `weights` quantises). kv: how keys and values are kept,
    "plain", "e4m3", "e5m2", "int8", "uint8", "int4", "int4_token". device: "auto" (the first
    GPU if it can run the model), "cpu", "cuda:1". dtype: "bf16", "f16" or "f32". context: most
    tokens of a sequence. kv_bytes: memory for keys and values. max_batch: sequences computed at
    once. speculate: "lookup" guesses tokens from earlier text, which changes nothing but speed.
    progress: whether to show how far loading and `generate` have come; on a terminal if None.
    """

    def __init__(
        self,
        folder: Union[str, "os.PathLike[str]", None] = None,
        *,
        weights: str = "stored",
        activations: str = "auto",
        kv: str = "plain",
        device: str = "auto",
        dtype: str = "bf16",
        context: int = 0,
        kv_bytes: int = 0,
        page_size: int = 0,
        max_batch: int = 64,
        max_step_tokens: int = 0,
        max_step_logits: int = 0,
        speculate: str = "off",
        draft_tokens: int = 15,
        threads: int = 0,
        prefix_cache: bool = True,
        graphs: bool = True,
        check_weights: bool = False,
        step_timeout: Optional[float] = None,
        progress: Optional[bool] = None,
    ):
        self._condition = threading.Condition()
        self._num_calls = 0
        self._is_closed = False
        self._progress = progress
        self.folder = default_model() if folder is None else os.fspath(folder)
        options = EngineOptions()
        lib.engine_options_init(ctypes.addressof(options))
        names = {"device": device, "dtype": dtype, "weights": weights, "kv": kv}
        names.update(activations=activations, speculation=speculate)
        for name, value in names.items():
            if not isinstance(value, str):
                raise Error(f"LLM: {name} is {value!r}; want a string")
            setattr(options, name, utf8(value, f"LLM: {name}"))
        counts = {
            "max_context": context,
            "kv_bytes": kv_bytes,
            "page_size": page_size,
            "max_batch": max_batch,
            "max_step_tokens": max_step_tokens,
            "max_step_logits": max_step_logits,
            "max_draft_tokens": draft_tokens,
            "num_threads": threads,
        }
        for name, count in counts.items():
            setattr(options, name, whole(count, f"LLM: {name}"))
        options.use_prefix_cache = bool(prefix_cache)
        options.use_graphs = bool(graphs)
        options.check_weights = bool(check_weights)
        if step_timeout is not None:
            options.step_timeout_s = float(step_timeout)
        self._handle = self._load(options)
        # Also at the end of the program, while the library is still usable.
        self._destroy = weakref.finalize(self, lib.engine_destroy, self._handle)
        info = CEngineInfo(ctypes.sizeof(CEngineInfo))
        check(lib.engine_info(self._handle, ctypes.addressof(info)))
        self.max_context: int = info.max_context
        self.device: str = "cpu" if info.device_index < 0 else f"cuda:{info.device_index}"
        self._info = info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template."""
        # Made anew: if it were kept, the two would refer to each other, and memory would be freed
        # late.
        return Tokenizer(self._using, self._info)

    def _load(self, options: EngineOptions) -> int:
        progress = Progress(self._progress)

        def on_load(_: object, done: int, total: int) -> None:
            progress.show(f"loading: {done / 1e6:.0f} of {total / 1e6:.0f} MB")

        options.on_load = LoadFunction(on_load)
        handle = ctypes.c_void_p()
        try:
            folder = utf8(str(self.folder), "LLM: folder")
            address = ctypes.addressof(options)
            check(lib.engine_create(folder, address, ctypes.addressof(handle)))
        finally:
            progress.end()
        return cast(int, handle.value)

    @contextmanager
    def _using(self) -> Iterator[int]:
        """The engine's handle, which close() does not take away meanwhile."""
        with self._condition:
            if self._is_closed:
                raise Error("LLM: it is closed; make another")
            self._num_calls += 1
        try:
            yield self._handle
        finally:
            with self._condition:
                self._num_calls -= 1
                self._condition.notify_all()

    def close(self) -> None:
        """Ends what runs, as cancelled, and frees the model."""
        with self._condition:
            self._is_closed = True
            self._condition.wait_for(lambda: self._num_calls == 0)
        self._destroy()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.device
        return f"LLM({self.folder!r}, {state})"

    def _submit(
        self,
        prompts: Sequence[Prompt],
        params: Union[SamplingParams, Sequence[SamplingParams], None],
        settings: Dict[str, Any],
        template: Optional[Dict[str, Any]] = None,
        pooling: Optional[str] = None,
    ) -> List[Generation]:
        if not prompts:
            return []
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise Error(f"{len(params)} SamplingParams for {len(prompts)} prompts; give one or all")
        if settings:
            try:
                params = [dataclasses.replace(one, **settings) for one in params]
            except TypeError:
                known = {field.name for field in dataclasses.fields(SamplingParams)}
                wrong = ", ".join(sorted(set(settings) - known))
                text = f"unknown settings: {wrong}; see help(tessera.SamplingParams)"
                raise Error(text) from None
        requests = make_requests(prompts, params, template, pooling)
        handles = (ctypes.c_void_p * len(prompts))()
        addresses = ctypes.addressof(requests), len(prompts), ctypes.addressof(handles)
        with self._using() as engine:
            status = lib.engine_submit(engine, *addresses)
            if status:
                raise_renamed(status)
        return [Generation(*one) for one in zip(handles, prompts, params)]

    def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        progress: Optional[bool] = None,
        **settings: Any,
    ) -> List[Result]:
        """Continues one prompt or many, which run together; results in their order.

        A prompt is a string, a list of token ids, or a conversation as in `chat`. params: one
        SamplingParams for all, or one for each. settings: fields of SamplingParams, such as
        max_tokens=20, which replace those of params. Ctrl-C cancels what runs.
        """
        given = _prompts_of(prompts)
        return self._finish(self._submit(given, params, settings), progress)

    def _finish(self, running: List[Generation], progress: Optional[bool]) -> List[Result]:
        shown = Progress(self._progress if progress is None else progress)
        begin = time.monotonic()
        results: List[Result] = []
        try:
            for generation in running:
                results.append(generation.result())
                tokens = sum(one.usage.completion_tokens for one in results)
                rate = tokens / max(time.monotonic() - begin, 1e-9)
                count = f"{len(results)} of {len(running)} prompts"
                shown.show(f"{count}, {tokens} tokens, {rate:.0f} a second")
        finally:
            shown.end()
            for generation in running:
                generation.close()  # cancels those that have not ended
        return results

    def chat(
        self,
        messages: Union[Sequence[Message], Sequence[Sequence[Message]]],
        params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        tools: Optional[Sequence[Dict[str, Any]]] = None,
        template_variables: Optional[Dict[str, Any]] = None,
        progress: Optional[bool] = None,
        **settings: Any,
    ) -> List[Result]:
        """Answers one conversation or many: [{"role": "user", "content": "Hello"}].

        tools and template_variables are passed to the model's chat template.
        """
        given = [messages] if is_conversation(messages) else list(messages)
        for one in given:
            if not is_conversation(one):
                want = '[{"role": "user", "content": "Hello"}]'
                raise Error(f"chat: {one!r} is no conversation; want {want}")
        template = dict(template_variables or {})
        if tools is not None:
            template["tools"] = list(tools)
        prompts = cast(List[Prompt], given)
        return self._finish(self._submit(prompts, params, settings, template), progress)

    def stream(
        self, prompt: Prompt, params: Optional[SamplingParams] = None, **settings: Any
    ) -> Iterator[Delta]:
        """The answer piece by piece, as it is computed. Leaving the loop cancels the rest."""
        return _deltas(self._submit([prompt], params, settings)[0])

    async def astream(
        self, prompt: Prompt, params: Optional[SamplingParams] = None, **settings: Any
    ) -> AsyncIterator[Delta]:
        """`stream` for asyncio: thousands may wait at once, on no thread of their own."""
        loop = asyncio.get_running_loop()
        submit = loop.run_in_executor(None, self._submit, [prompt], params, settings)
        generation = (await asyncio.shield(submit))[0]
        try:
            descriptor = generation.descriptor()
            while not generation.is_over:
                taken = generation.take(0, False)
                if taken is not None:
                    yield taken[0]
                elif not generation.is_over:
                    await _readable(loop, descriptor)
        finally:
            generation.close()

    def score(
        self, texts: Union[Prompt, Sequence[Prompt]], *, context: Optional[str] = None
    ) -> List[Score]:
        """Log-probabilities of texts or token lists, one Score for each.

        Of a text every token is scored, the first one only where the tokenizer puts a token before
        it. context: a text that comes before each of them and is not scored.
        """
        sequences = []
        num_skipped = []
        before = [] if context is None else self.tokenizer.encode(context)
        for text in _prompts_of(texts):
            if isinstance(text, str):
                tokens = self.tokenizer.encode(text, add_special_tokens=context is None)
            else:
                tokens = [whole(token, "score: token", 0, 2**31 - 1) for token in text]
            sequences.append(before + tokens)
            num_skipped.append(max(len(before), 1))
            if len(sequences[-1]) <= num_skipped[-1]:
                raise Error(f"score: {text!r} has no token to score after the first; give context")
        params = SamplingParams(max_tokens=0, prompt_logprobs=True)
        results = self._finish(self._submit(sequences, params, {}), progress=None)
        return [
            Score(tokens[skipped:], (result.prompt_logprobs or [])[skipped - 1 :])
            for tokens, skipped, result in zip(sequences, num_skipped, results)
        ]

    def embed(
        self,
        texts: Union[Prompt, Sequence[Prompt]],
        *,
        pooling: str = "last",
        normalize: bool = True,
    ) -> List[List[float]]:
        """A vector for each text: the hidden states behind the model's last norm, pooled.

        pooling: "last" takes the state of the last token, "mean" the mean over all tokens.
        normalize: scale vectors to length 1, so that their products are cosine similarities.
        """
        if pooling not in POOLINGS or pooling is None:
            raise Error(f"embed: pooling is {pooling!r}; want 'last' or 'mean'")
        params = SamplingParams(max_tokens=0)
        running = self._submit(_prompts_of(texts), params, {}, pooling=pooling)
        try:
            vectors = []
            for generation in running:
                generation.result()
                vectors.append(generation.embedding())
        finally:
            for generation in running:
                generation.close()
        return [_unit(vector) for vector in vectors] if normalize else vectors

    def stats(self) -> Dict[str, Union[int, float]]:
        """Counters of the engine: tokens, pages, memory, steps."""
        stats = EngineStats(ctypes.sizeof(EngineStats))
        with self._using() as engine:
            check(lib.engine_stats(engine, ctypes.addressof(stats)))
        return {field[0]: getattr(stats, field[0]) for field in EngineStats._fields_[1:]}


def _unit(vector: List[float]) -> List[float]:
    length = math.sqrt(math.fsum(value * value for value in vector))
    return [value / length for value in vector] if length > 0 else vector


def _deltas(generation: Generation) -> Iterator[Delta]:
    try:
        while not generation.is_over:
            taken = generation.take(POLL_SECONDS, False)
            if taken is not None:
                yield taken[0]
    finally:
        generation.close()


async def _readable(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    ready: "asyncio.Future[None]" = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
