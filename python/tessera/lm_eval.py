# Tessera as a model of lm-evaluation-harness.
# SPDX-License-Identifier: MIT
"""Importing this module registers the model "tessera" with the harness (package lm_eval).

python -m tessera.lm_eval --model tessera --model_args pretrained=FOLDER --tasks arc_easy

is the harness's own command line, with that model known. model_args are those of tessera.LLM
(weights, kv, device, dtype), and max_length. From Python: lm_eval.simple_evaluate(model="tessera",
model_args={"pretrained": FOLDER}, tasks=[...]).
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from . import LLM, SamplingParams
from ._library import Error

Tokens = List[int]
_STEP_LOGITS = 512  # rows of logits in one step: all tokens of a text are scored


@register_model("tessera")
class TesseraLM(TemplateLM):
    """A tessera.LLM as the harness asks it.

    pretrained: the model's folder; the bundled model if None. batch_size: sequences computed at
    once. max_length: tokens of a sequence. Other arguments go to tessera.LLM.
    """

    def __init__(
        self,
        pretrained: Optional[str] = None,
        *,
        batch_size: Any = None,
        max_batch_size: Any = None,
        max_length: int = 0,
        max_gen_toks: int = 256,
        device: Optional[str] = None,
        **options: Any,
    ):
        super().__init__()
        digits = str(batch_size or max_batch_size or 8)
        self.llm = LLM(
            pretrained,
            device=device or "auto",
            context=int(max_length),
            max_batch=int(digits) if digits.isdigit() else 8,  # "auto" has no meaning here
            max_step_logits=_STEP_LOGITS,
            **options,
        )
        self.max_length: int = self.llm.max_context
        self.max_gen_toks = int(max_gen_toks)

    @property
    def eot_token_id(self) -> int:
        """What stands before a text that has no context."""
        tokenizer = self.llm.tokenizer
        for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
            if token is not None:
                return token
        raise Error("lm_eval: the model has neither a first nor a last token for empty contexts")

    @property
    def tokenizer_name(self) -> str:
        """For the harness's cache of requests."""
        return str(self.llm.folder)

    def tok_encode(
        self, string: str, add_special_tokens: Optional[bool] = None, **_: Any
    ) -> Tokens:
        """With the tokens that the tokenizer puts before every text, unless told otherwise."""
        return self.llm.tokenizer.encode(string, add_special_tokens=add_special_tokens is not False)

    def apply_chat_template(
        self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation as the model reads it, as text."""
        return str(
            self.llm.tokenizer.apply_chat_template(
                chat_history, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    def _fitting(self, context: Tokens, scored: Tokens) -> Tokens:
        """Context and continuation, without the beginning if they are longer than the model's."""
        if len(scored) >= self.max_length:
            raise Error(
                f"lm_eval: {len(scored)} tokens are to be scored; the context holds "
                f"{self.max_length}, with one before them"
            )
        return (context + scored)[-self.max_length :]

    def _sums(self, pairs: Sequence[Tuple[Tokens, Tokens]]) -> List[float]:
        """The log-probability of each second part after its first."""
        if not pairs:
            return []
        scores = self.llm.score([self._fitting(*pair) for pair in pairs])
        return [
            float(sum(score.logprobs[-len(scored) :])) for score, (_, scored) in zip(scores, pairs)
        ]

    def _greedy(self, pairs: Sequence[Tuple[Tokens, Tokens]]) -> List[bool]:
        """Whether greedy decoding would give each second part.

        One token is generated for each different context, and the rest only where that is right.
        """
        prompts = [self._fitting(*pair)[: -len(pair[1])] for pair in pairs]
        contexts = list({tuple(prompt): None for prompt in prompts})
        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
        results = self.llm.generate([list(one) for one in contexts], params)
        first = {context: result.tokens[:1] for context, result in zip(contexts, results)}
        found = [first[tuple(p)] == s[:1] for p, (_, s) in zip(prompts, pairs)]
        rest = [i for i, (_, scored) in enumerate(pairs) if found[i] and len(scored) > 1]
        lengths = [SamplingParams(temperature=0, max_tokens=len(pairs[i][1]), ignore_eos=True)
                   for i in rest]
        if rest:
            for i, result in zip(rest, self.llm.generate([prompts[i] for i in rest], lengths)):
                found[i] = result.tokens == pairs[i][1]
        return found

    def _loglikelihood_tokens(
        self, requests: Sequence[Tuple[Any, Tokens, Tokens]], **_: Any
    ) -> List[Tuple[float, bool]]:
        pairs = [(context, scored) for _, context, scored in requests]
        answers = list(zip(self._sums(pairs), self._greedy(pairs)))
        for (key, *_rest), answer in zip(requests, answers):
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """The log-probability of whole texts, in windows of the model's context."""
        answers = []
        for request in requests:
            (text,) = request.args
            tokens = self.tok_encode(text, add_special_tokens=False)
            windows = get_rolling_token_windows(
                tokens, self.prefix_token_id, max_seq_len=self.max_length - 1, context_len=1
            )
            answer = sum(self._sums([make_disjoint_window(window) for window in windows]))
            answers.append(answer)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answer)
        return answers

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[str]:
        """Greedy unless a task asks for sampling; texts end before a string of "until"."""
        prompts, params = [], []
        for request in requests:
            context, given = request.args
            until = given.get("until") or ()
            stops = [until] if isinstance(until, str) else list(until)
            count = int(given.get("max_gen_toks", given.get("max_tokens", self.max_gen_toks)))
            does_sample = bool(given.get("do_sample", given.get("temperature", 0) > 0))
            more = {name: given[name] for name in ("top_p", "top_k", "min_p") if name in given}
            params.append(
                SamplingParams(
                    max_tokens=count,
                    temperature=given.get("temperature", 1.0) if does_sample else 0,
                    stop=[stop for stop in stops if stop],
                    **(more if does_sample else {}),
                )
            )
            prompts.append(self.tok_encode(context)[-max(self.max_length - count, 1) :])
        results = self.llm.generate(prompts, params) if prompts else []
        for request, result in zip(requests, results):
            self.cache_hook.add_partial("generate_until", request.args, result.text)
        return [result.text for result in results]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
