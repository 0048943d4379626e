# Sampling on NumPy arrays: greedy, biases, lists, probabilities and log-probabilities.
# SPDX-License-Identifier: MIT
import numpy as np
import pytest
import tessera

LOGITS = np.float32([[1, 3, 2, 3], [0, -1, 5, -np.inf], [-np.inf] * 4])


def floats(*values):
    return np.array(values, np.float32)


def ints(*values):
    return np.array(values, np.int32)


def test_greedy_takes_the_first_of_the_largest():
    out = np.zeros(3, np.int32)
    assert tessera.sample(LOGITS, temperature=floats(0, 0, 0), out=out) is out
    np.testing.assert_array_equal(out, [1, 2, -2])
    np.testing.assert_array_equal(tessera.sample(LOGITS, top_k=ints(1, 1, 1)), [1, 2, -2])


def test_a_draw_follows_the_probabilities():
    num = 20000
    rows = np.tile(np.log(floats(0.5, 0.3, 0.15, 0.05)), (num, 1))
    how = {"positions": np.arange(num, dtype=np.int32), "seeds": np.full(num, 9, np.int64)}
    tokens = tessera.sample(rows, **how)
    counts = np.bincount(tokens, minlength=4) / num
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.15, 0.05], atol=0.015)
    np.testing.assert_array_equal(tessera.sample(rows, **how), tokens)
    cut = tessera.sample(rows, top_p=np.full(num, 0.7, np.float32), **how)
    counts = np.bincount(cut, minlength=4) / num
    np.testing.assert_allclose(counts, [0.625, 0.375, 0, 0], atol=0.015)


def test_biases_and_lists_change_the_choice_and_are_counted():
    logits, greedy = LOGITS[:1], {"temperature": floats(0)}
    biases = {"bias_starts": ints(0, 2), "bias_tokens": ints(1, 0)}
    biases["bias_values"] = floats(-np.inf, 1.5)
    np.testing.assert_array_equal(tessera.sample(logits, **biases, **greedy), [3])
    lists = {"slots": ints(1), "seen_tokens": np.full((2, 3), -1, np.int32)}
    lists.update(seen_counts=np.zeros((2, 3), np.int32), num_seen=ints(0, 0))
    for token in (1, 3, 2, 1):
        got = tessera.sample(logits, presence=floats(1.2), **lists, **greedy)
        np.testing.assert_array_equal(got, [token])
    np.testing.assert_array_equal(lists["seen_tokens"][1], [1, 3, 2])
    np.testing.assert_array_equal(lists["seen_counts"][1], [2, 1, 1])
    np.testing.assert_array_equal(lists["num_seen"], [0, 3])


def test_logprobs_are_those_of_the_softmax():
    wide = LOGITS.astype(np.float64)[:2]
    want = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    tokens = ints(2, 0, 0)
    got = tessera.token_logprobs(LOGITS, tokens)
    np.testing.assert_allclose(got[:2], [want[0, 2], want[1, 0]], rtol=1e-6)
    assert np.isnan(got[2])
    same, best, scores = tessera.top_logprobs(LOGITS, tokens, 4)
    np.testing.assert_array_equal(same, got)
    np.testing.assert_array_equal(best, [[1, 3, 2, 0], [2, 0, 1, -1], [-1] * 4])
    np.testing.assert_allclose(scores[0], want[0, [1, 3, 2, 0]], rtol=1e-6)
    assert np.isnan(scores[1, 3]) and np.isnan(scores[2]).all()


def test_masks_leave_tokens_out():
    masks = np.array([[0b1001], [0b0100]], np.int32)  # tokens 0 and 3; token 2
    greedy = {"temperature": floats(0, 0, 0), "masks": masks}
    plain = tessera.sample(LOGITS, temperature=floats(0, 0, 0))
    got = tessera.sample(LOGITS, mask_rows=ints(-1, -1, -1), **greedy)
    np.testing.assert_array_equal(got, plain)
    got = tessera.sample(LOGITS, mask_rows=ints(0, 1, 0), **greedy)
    np.testing.assert_array_equal(got, [3, 2, -2])
    with pytest.raises(tessera.Error, match="give masks and mask_rows, or neither"):
        tessera.sample(LOGITS, masks=masks)


def test_refusals_name_the_tensor():
    with pytest.raises(tessera.Error, match=r"sample: temperature is f32\[2\].*must have 3"):
        tessera.sample(LOGITS, temperature=floats(1, 1))
    with pytest.raises(tessera.Error, match="give slots, seen_tokens, seen_counts and num_seen"):
        tessera.sample(LOGITS, slots=ints(0, 0, 0))
    with pytest.raises(tessera.Error, match=r"top_tokens is i32\[3, 300\].*at most 256"):
        tessera.top_logprobs(LOGITS, ints(0, 0, 0), 300)
    assert tessera.supports(tessera.sample, LOGITS)
    assert not tessera.supports(tessera.sample, LOGITS.astype(np.float16))
