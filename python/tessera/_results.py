# What an LLM is asked for and what it returns, as plain data.
# SPDX-License-Identifier: MIT
"""Sampling parameters, and results as dataclasses."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Union

# A text to continue, token ids, or a conversation: [{"role": "user", "content": "Hello"}].
Message = Dict[str, Any]
Prompt = Union[str, Sequence[int], Sequence[Message]]


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen, and when a generation ends.

    Applied in this order: logit_bias, penalties, temperature, top_k, typical_p, top_p, min_p, then
    one draw. The draw depends on the seed, the sequence and the position alone, so a request with a
    seed gives the same text in any batch.
    """

    max_tokens: int = 256  # fewer if the context is full before
    min_tokens: int = 0  # no end before this many
    temperature: float = 1.0  # 0: always the most probable token
    top_k: int = 0  # keep the k most probable; 0: all
    top_p: float = 1.0  # keep the fewest that reach this probability
    min_p: float = 0.0  # keep tokens of at least this share of the best one's probability
    typical_p: float = 1.0  # keep the nearest to the entropy that reach this probability
    repetition_penalty: float = 1.0  # > 1 lowers the logits of tokens seen, also in the prompt
    presence_penalty: float = 0.0  # subtracted once if the token was generated before
    frequency_penalty: float = 0.0  # subtracted for each time it was generated
    logit_bias: Dict[int, float] = field(default_factory=dict)  # token id to bias, +-100
    seed: Optional[int] = None  # None: chosen by the engine
    stop: Union[str, Sequence[str]] = ()  # end at one of these texts, which are left out
    stop_tokens: Sequence[int] = ()  # end at one of these ids, beside the model's own
    ignore_eos: bool = False  # go on past the end of text
    n: int = 1  # sequences sampled from one prompt
    beam_width: int = 0  # > 0: beam search in place of sampling
    length_penalty: float = 1.0  # a beam's score is logprob / length ** length_penalty
    logprobs: Optional[int] = None  # log-probabilities of tokens, with this many alternatives each
    prompt_logprobs: bool = False  # of every prompt token but the first
    priority: int = 0  # larger goes first
    timeout: Optional[float] = None  # seconds; then the request ends with "deadline"
    cache_salt: str = ""  # cached prefixes are shared only between equal salts


@dataclass(frozen=True)
class TokenLogprob:
    """A generated token, its log-probability, and the most probable tokens in its place."""

    token: int
    logprob: float
    top: Dict[int, float] = field(default_factory=dict)  # token id to log-probability, best first


@dataclass(frozen=True)
class Usage:
    """How many tokens a request took."""

    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, reused from the prefix cache
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Completion:
    """One sequence."""

    index: int
    text: str
    tokens: List[int]
    finish_reason: str  # "stop", "length", "cancelled" or "deadline"
    logprobs: Optional[List[TokenLogprob]] = None  # if asked for
    score: float = 0.0  # of a beam


@dataclass(frozen=True)
class Result:
    """What a prompt gave. Its text, tokens and so on are those of the first sequence."""

    prompt: Prompt
    outputs: List[Completion]
    usage: Usage
    prompt_logprobs: Optional[List[float]] = None  # of prompt tokens 1, 2, ...; if asked for

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def tokens(self) -> List[int]:
        return self.outputs[0].tokens

    @property
    def finish_reason(self) -> str:
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> Optional[List[TokenLogprob]]:
        return self.outputs[0].logprobs


@dataclass(frozen=True)
class Delta:
    """What a sequence has gained since its last delta: whole characters, and their tokens."""

    text: str
    tokens: List[int]
    index: int = 0  # which of the `n` sequences
    finish_reason: Optional[str] = None  # set in the last delta of a sequence
    logprobs: Optional[List[TokenLogprob]] = None
    usage: Optional[Usage] = None  # so far; the completion tokens are those of all sequences


@dataclass(frozen=True)
class Score:
    """Log-probabilities of given tokens, each under the model given all tokens before it."""

    tokens: List[int]
    logprobs: List[float]

    @property
    def total(self) -> float:
        return math.fsum(self.logprobs)

    @property
    def perplexity(self) -> float:
        return math.exp(-self.total / len(self.logprobs))
