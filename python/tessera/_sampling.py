# Sampling: from logits to tokens, and log-probabilities.
# SPDX-License-Identifier: MIT
from ._call import empty, make_op, make_struct_op, shape_of

_sample, _pack_sample = make_struct_op("sample")
_token_logprobs = make_op("token_logprobs")


def sample(
    logits,
    *,
    temperature=None,
    top_k=None,
    typical_p=None,
    top_p=None,
    min_p=None,
    seeds=None,
    sequences=None,
    positions=None,
    bias_starts=None,
    bias_tokens=None,
    bias_values=None,
    slots=None,
    seen_tokens=None,
    seen_counts=None,
    num_seen=None,
    repetition=None,
    presence=None,
    frequency=None,
    masks=None,
    mask_rows=None,
    out=None,
):
    """One token of each row of logits (float32 [rows, vocab]): int32 [rows].

    Settings are tensors with one element per row. Biases, penalties (of tokens seen before) and the
    temperature change the logits; top_k, typical_p, top_p and min_p, in this order, each keep some
    of the tokens that are left; one of the rest is drawn, as a function of seeds (int64), sequences
    and positions (int32) alone. Temperature 0 takes the largest logit. The token is the same on
    every device. -1: a logit is NaN or +infinity; -2: every logit is -infinity.

    bias_starts int32 [rows + 1], bias_tokens int32 and bias_values float32 [entries]: entries
    bias_starts[r] to bias_starts[r + 1] are row r's, held to -100 and 100; -infinity bans a token.

    slots int32 [rows]: which list of tokens seen before a row has, -1 for none; seen_tokens and
    seen_counts int32 [lists, capacity], num_seen int32 [lists]: different tokens, and how often
    each was generated, plus 2**30 if the prompt has it. The token that is drawn is counted.

    masks int32 [masks, ceil(vocab / 32)]: bit t % 32 of word t // 32 says whether token t may be
    drawn; mask_rows int32 [rows]: which mask a row has, -1 for none.
    """
    if out is None:
        out = empty("sample", logits, shape_of("sample", "logits", logits)[:-1], "i32")
    tensors = (logits, out, temperature, top_k, typical_p, top_p, min_p)
    tensors += (seeds, sequences, positions, bias_starts, bias_tokens, bias_values)
    tensors += (slots, seen_tokens, seen_counts, num_seen, repetition, presence, frequency)
    tensors += (masks, mask_rows)
    _sample(tensors, _pack_sample())
    return out


def token_logprobs(logits, tokens, *, out=None):
    """The log-probability of each row's token: float32 [rows].

    logits float32 [rows, vocab], tokens int32 [rows]. NaN for a token outside the row.
    """
    if out is None:
        out = empty("token_logprobs", logits, shape_of("token_logprobs", "tokens", tokens), "f32")
    _token_logprobs((logits, tokens, out))
    return out


def top_logprobs(logits, tokens, count: int, *, out=None):
    """token_logprobs, and the `count` most probable tokens of each row, best first.

    Returns (logprobs, top_tokens int32 [rows, count], top_logprobs float32 [rows, count]); out: a
    tuple like it, to write into. Where a row has fewer tokens, the rest are -1 and NaN.
    """
    if out is None:
        rows = shape_of("token_logprobs", "tokens", tokens)
        out = tuple(
            empty("token_logprobs", logits, shape, dtype)
            for shape, dtype in ((rows, "f32"), ((*rows, count), "i32"), ((*rows, count), "f32"))
        )
    _token_logprobs((logits, tokens, *out))
    return out
