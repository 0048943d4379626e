# Requests as C structs, generations as handles, and outputs back as dataclasses.
# SPDX-License-Identifier: MIT
"""Between the engine's C ABI and the classes of `_llm`."""

from __future__ import annotations

import ctypes
import json
import re
import threading
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._engine_types import FINISH_REASONS, Output, Request
from ._library import Error, RequestError, lib, raise_error, whole
from ._results import Completion, Delta, Prompt, Result, SamplingParams, TokenLogprob, Usage

# How long a wait in C lasts before Python may handle signals such as Ctrl-C.
POLL_SECONDS = 0.1

_FINISH_NAMES = {code: name for name, code in FINISH_REASONS.items()}


def check(status: int) -> None:
    if status:
        raise_error(status)


def utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Error(f"{what} is not Unicode text: {error}") from None


def is_conversation(prompt: Any) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], dict)


def to_json(value: Any, what: str) -> bytes:
    try:
        return utf8(json.dumps(value, ensure_ascii=False), what)
    except (TypeError, ValueError) as error:
        raise Error(f"{what} cannot be written as JSON: {error}") from None


def int32_array(values: Sequence[int], what: str) -> Any:
    checked = [whole(value, what, -(2**31), 2**31 - 1) for value in values]
    return (ctypes.c_int32 * max(len(checked), 1))(*checked)


def _number(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error(f"{what} is {value!r}; want a number") from None


_FLOATS = (
    "temperature top_p min_p typical_p repetition_penalty presence_penalty frequency_penalty "
    "length_penalty"
).split()
# Fields of SamplingParams and of TesseraRequest.
_COUNTS = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
_SMALL = {"top_k": "top_k", "n": "num_outputs", "beam_width": "beam_width", "priority": "priority"}


# What messages of the engine call fields that have other names here.
_NAMES = {
    **{field: name for name, field in {**_COUNTS, **_SMALL}.items()},
    "num_logprobs": "logprobs",
    "wants_prompt_logprobs": "prompt_logprobs",
    "timeout_s": "timeout",
    "max_context": "context",
}
_FIELD = re.compile(r"\b(" + "|".join(_NAMES) + r")\b")


def raise_renamed(status: int) -> None:
    """Raises the error of a refused request, with the names of SamplingParams."""
    try:
        raise_error(status)
    except Error as error:
        error.args = (_FIELD.sub(lambda match: _NAMES[match[1]], str(error)),)
        raise


def fill_sampling(request: Request, params: SamplingParams) -> None:
    for name in _FLOATS:
        setattr(request, name, _number(getattr(params, name), name))
    for name, field in _COUNTS.items():
        setattr(request, field, whole(getattr(params, name), name, -(2**63)))
    for name, field in _SMALL.items():
        setattr(request, field, whole(getattr(params, name), name, -(2**31), 2**31 - 1))
    if params.seed is not None:
        request.seed = whole(params.seed, "seed", 0, 2**64 - 1)
        request.has_seed = 1
    if params.logit_bias:
        request.bias_tokens = int32_array(list(params.logit_bias), "logit_bias")
        values = [_number(value, "logit_bias") for value in params.logit_bias.values()]
        request.bias_values = (ctypes.c_float * len(values))(*values)
        request.num_biases = len(values)
    stop = [params.stop] if isinstance(params.stop, str) else list(params.stop)
    if stop:
        request.stop = (ctypes.c_char_p * len(stop))(*(utf8(one, "stop") for one in stop))
        request.num_stop = len(stop)
    if params.stop_tokens:
        request.stop_tokens = int32_array(params.stop_tokens, "stop_tokens")
        request.num_stop_tokens = len(params.stop_tokens)
    request.ignores_eos = bool(params.ignore_eos)
    if params.logprobs is not None:
        request.num_logprobs = whole(params.logprobs, "logprobs", 0, 2**31 - 1)
    request.wants_prompt_logprobs = bool(params.prompt_logprobs)
    if params.timeout is not None:
        request.timeout_s = _number(params.timeout, "timeout")
    if params.cache_salt:
        request.cache_salt = utf8(params.cache_salt, "cache_salt")


def fill_prompt(request: Request, prompt: Prompt, template: Optional[Dict[str, Any]]) -> None:
    if isinstance(prompt, str):
        text = utf8(prompt, "prompt")
        request.text, request.text_bytes = text, len(text)
    elif is_conversation(prompt):
        request.messages_json = to_json(list(prompt), "messages")
        if template:
            request.template_json = to_json(template, "template variables")
    else:
        request.tokens = int32_array(list(prompt), "prompt")  # type: ignore[arg-type]
        request.num_tokens = len(prompt)


POOLINGS = {None: 0, "last": 1, "mean": 2}  # TesseraRequest.pooling


def make_requests(
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    template: Optional[Dict[str, Any]],
    pooling: Optional[str] = None,
) -> Any:
    """The requests as one array of C."""
    requests = (Request * len(prompts))()
    for request, prompt, one in zip(requests, prompts, params):
        lib.request_init(ctypes.addressof(request))
        fill_prompt(request, prompt, template)
        fill_sampling(request, one)
        request.pooling = POOLINGS[pooling]
    return requests


class Generation:
    """The handle of a running request. Several threads may use it; each output goes to one."""

    def __init__(self, handle: int, prompt: Prompt, params: SamplingParams):
        self.prompt, self.params = prompt, params
        self._handle = handle
        self._lock = threading.Lock()
        self._output = Output(ctypes.sizeof(Output))
        self.is_over = False
        self.usage = Usage()
        self.prompt_logprobs: Optional[List[float]] = None
        # Runs at the end of the program as well.
        self.close = weakref.finalize(self, lib.generation_destroy, handle)

    def take(self, timeout: float, is_whole: bool) -> Optional[Tuple[Delta, float]]:
        """(delta, score) of a sequence, or None if there is none within the time."""
        with self._lock:
            if self.is_over or not self.close.alive:
                return None
            output = self._output
            check(
                lib.generation_next(self._handle, timeout, is_whole, ctypes.addressof(output))
            )
            self.is_over = bool(output.is_last)
            if output.index < 0:
                return None
            return self._read(output), output.score

    def _read(self, output: Output) -> Delta:
        finish = _FINISH_NAMES[output.finish]
        if finish == "error":
            raise RequestError(output.error.decode(errors="replace"))
        if output.num_prompt_logprobs:
            self.prompt_logprobs = output.prompt_logprobs[: output.num_prompt_logprobs]
        self.usage = Usage(
            self.usage.prompt_tokens + output.num_prompt_tokens,
            self.usage.cached_tokens + output.num_cached_tokens,
            self.usage.completion_tokens + output.num_tokens,
        )
        return Delta(
            text=ctypes.string_at(output.text, output.text_bytes).decode(),
            tokens=output.tokens[: output.num_tokens],
            index=output.index,
            finish_reason=None if finish == "none" else finish,
            logprobs=self._logprobs(output),
            usage=self.usage,
        )

    def _logprobs(self, output: Output) -> Optional[List[TokenLogprob]]:
        if self.params.logprobs is None:
            return None
        found = []
        for i in range(output.num_tokens):
            places = range(i * output.num_top, (i + 1) * output.num_top)
            pairs = ((output.top_tokens[at], output.top_logprobs[at]) for at in places)
            top = {token: logprob for token, logprob in pairs if token >= 0}
            found.append(TokenLogprob(output.tokens[i], output.logprobs[i], top))
        return found

    def embedding(self) -> List[float]:
        """Of a request with pooling that has ended."""
        count = ctypes.c_int64()
        check(lib.generation_embedding(self._handle, None, 0, ctypes.addressof(count)))
        values = (ctypes.c_float * max(count.value, 1))()
        check(lib.generation_embedding(
            self._handle, ctypes.addressof(values), count.value, ctypes.addressof(count)
        ))
        return values[: count.value]

    def descriptor(self) -> int:
        found = ctypes.c_int()
        check(lib.generation_descriptor(self._handle, ctypes.addressof(found)))
        return found.value

    def cancel(self) -> None:
        if self.close.alive:
            check(lib.generation_cancel(self._handle))

    def result(self) -> Result:
        """Waits until every sequence has ended."""
        outputs: List[Completion] = []
        while not self.is_over:
            taken = self.take(POLL_SECONDS, True)
            if taken is None:
                continue
            delta, score = taken
            outputs.append(
                Completion(
                    index=delta.index,
                    text=delta.text,
                    tokens=delta.tokens,
                    finish_reason=delta.finish_reason or "",
                    logprobs=delta.logprobs,
                    score=score,
                )
            )
        outputs.sort(key=lambda one: one.index)
        return Result(self.prompt, outputs, self.usage, self.prompt_logprobs)
