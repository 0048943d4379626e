# Decoding steps of a patched model that are recorded and replayed, on the CPU.
# SPDX-License-Identifier: MIT
"""In place of a CUDA graph, PyTorch's tracer records the operations of a step. Like a graph it
holds addresses and numbers as they were, so a step that depends on Python's numbers goes wrong."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this Transformers has no attention interface", allow_module_level=True)
import tessera  # noqa: E402
import tessera.hf  # noqa: E402
from tessera import _torch_ops as ops  # noqa: E402
from tessera._hf_graph import length_class  # noqa: E402
from test_hf import generated, make_model, prompt  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402


@pytest.fixture(autouse=True)
def inference():
    with torch.no_grad():
        yield


def record(step, inputs, pool):
    with ops.recorded():
        traced = make_fx(step)(*inputs)
    result = traced(*inputs).clone()
    return lambda: result.copy_(traced(*inputs)), result


def patched(**options):
    model = make_model()
    tessera.hf.patch(model, **options)
    model._tessera_patch.steps.record = record
    return model, model._tessera_patch.steps


def test_there_are_four_classes_in_a_doubling():
    assert [length_class(n) for n in (1, 256, 257, 320, 321, 512, 513, 8192, 8193)] == [
        256, 256, 320, 320, 384, 512, 640, 8192, 10240]
    assert all(length_class(n) >= n for n in range(1, 5000))


@pytest.mark.parametrize("kv", ["plain", "int8", "int4"])
@pytest.mark.parametrize("batch", [1, 3])
def test_replayed_steps_give_the_same_tokens(batch, kv):
    model = make_model()
    tessera.hf.patch(model, kv=kv, graphs=False)
    want = generated(model, prompt(batch))
    model, steps = patched(kv=kv)
    assert generated(model, prompt(batch)) == want
    assert steps.num_replays == 19 and steps._why_not is None
    assert generated(model, prompt(batch)) == want and steps.num_replays == 38


def test_memory_is_used_again_unless_somebody_holds_it():
    model, steps = patched()
    want = generated(model, prompt())
    prepare = model._prepare_cache_for_generation
    caches = next(cell.cell_contents for cell in prepare.__closure__
                  if hasattr(cell.cell_contents, "idle"))
    first = caches.idle
    assert first is not None and len(first.recorded) == 1
    kept = model.generate(
        prompt(), attention_mask=torch.ones(1, 9), max_new_tokens=20, do_sample=False,
        pad_token_id=0, return_dict_in_generate=True)
    assert kept.past_key_values.storage is first and caches.idle is None
    assert generated(model, prompt()) == want == kept.sequences.tolist()
    assert caches.idle is not first
    assert kept.past_key_values.get_seq_length() == 28


def test_padding_and_several_tokens_are_not_replayed():
    model, steps = patched()
    ids, mask = prompt(2), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    arguments = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    want = make_model().generate(ids, **arguments).tolist()
    assert model.generate(ids, **arguments).tolist() == want and steps.num_replays == 0
    cache = tessera.hf.TesseraCache(model.config, 64)
    whole = make_model()(ids).logits
    parts = [model(part, past_key_values=cache).logits for part in ids.split((5, 3, 1), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-4)
    assert steps.num_replays == 1


def test_positions_may_be_given_and_the_cache_shortened():
    model, steps = patched()
    ids = prompt()
    cache = tessera.hf.TesseraCache(model.config, 64)
    model(ids, past_key_values=cache)
    token = torch.tensor([[7]])
    first = model(token, past_key_values=cache).logits
    cache.crop(9)
    again = model(token, past_key_values=cache, position_ids=torch.tensor([[9]])).logits
    assert torch.equal(first, again) and steps.num_replays == 2
    cache.crop(9)
    other = model(token, past_key_values=cache, position_ids=torch.tensor([[20]])).logits
    assert not torch.equal(first, other)


def test_beams():
    arguments = {"attention_mask": torch.ones(1, 9), "max_new_tokens": 8, "num_beams": 3,
                 "do_sample": False, "pad_token_id": 0}
    want = make_model().generate(prompt(), **arguments).tolist()
    model, steps = patched()
    assert model.generate(prompt(), **arguments).tolist() == want and steps.num_replays > 0


def test_a_step_that_cannot_be_recorded_runs_as_it_is():
    want = generated(make_model(), prompt())
    model, steps = patched()

    def refuse(step, inputs, pool):
        raise RuntimeError("no room for graphs")

    steps.record = refuse
    with pytest.warns(RuntimeWarning, match="cannot be recorded as a graph: no room for graphs"):
        assert generated(model, prompt()) == want
    assert steps.num_replays == 0
