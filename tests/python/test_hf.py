# Transformers on Tessera: the same answers with its attention, layers and cache, on the CPU.
# SPDX-License-Identifier: MIT
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
if not hasattr(transformers, "AttentionInterface"):
    pytest.skip("this Transformers has no attention interface", allow_module_level=True)
import tessera  # noqa: E402
import tessera.hf  # noqa: E402
from tessera._torch_weights import _told  # noqa: E402


@pytest.fixture(autouse=True)
def no_fall_backs():
    _told.clear()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="tessera: ")
        yield


def make_model(kind="Llama", **more):
    torch.manual_seed(1)
    config = getattr(transformers, kind + "Config")(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, **more,
    )
    return getattr(transformers, kind + "ForCausalLM")(config).eval()


def prompt(batch=1):
    torch.manual_seed(2)
    return torch.randint(3, 64, (batch, 9))


def logits(model, ids, **more):
    return model(input_ids=ids, **more).logits


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mistral"])
def test_attention_gives_the_logits_of_eager(kind):
    model = make_model(kind)
    model.set_attn_implementation("eager")
    want = logits(model, prompt(2))
    model.set_attn_implementation("tessera")
    torch.testing.assert_close(logits(model, prompt(2)), want, rtol=1e-4, atol=1e-4)


def test_padding_is_masked():
    model = make_model()
    ids, mask = prompt(2), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0  # on the left, as in generation
    model.set_attn_implementation("eager")
    want = logits(model, ids, attention_mask=mask)
    model.set_attn_implementation("tessera")
    got = logits(model, ids, attention_mask=mask)
    seen = mask.bool()
    torch.testing.assert_close(got[seen], want[seen], rtol=1e-4, atol=1e-4)


def generated(model, ids, cache=None):
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False,
        past_key_values=cache, pad_token_id=0,
    ).tolist()


def test_patch_and_unpatch():
    model = make_model()
    want, tokens = logits(model, prompt()), generated(model, prompt())
    names = [type(module).__name__ for module in model.modules()]
    assert tessera.hf.patch(model) == {"attention": 2, "layer": 2, "linear": 0, "mlp": 2, "norm": 5}
    torch.testing.assert_close(logits(model, prompt()), want, rtol=1e-4, atol=1e-4)
    assert generated(model, prompt()) == tokens
    with pytest.raises(tessera.Error, match="patched already"):
        tessera.hf.patch(model)
    tessera.hf.unpatch(model)
    assert [type(module).__name__ for module in model.modules()] == names
    assert torch.equal(logits(model, prompt()), want)
    assert "forward" not in model.__dict__ and generated(model, prompt()) == tokens
    with pytest.raises(tessera.Error, match="not patched"):
        tessera.hf.unpatch(model)


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_patched_models_of_several_kinds(kind):
    model = make_model(kind)
    want, tokens = logits(model, prompt(2)), generated(model, prompt(2))
    assert tessera.hf.patch(model)["attention"] == 2
    torch.testing.assert_close(logits(model, prompt(2)), want, rtol=1e-4, atol=1e-4)
    assert generated(model, prompt(2)) == tokens


def test_a_patched_model_masks_padding():
    model = make_model()
    ids, mask = prompt(2), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    arguments = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids, **arguments).tolist()
    tessera.hf.patch(model)
    assert model.generate(ids, **arguments).tolist() == want


def test_a_patched_model_records_gradients_in_pytorch():
    model = make_model()
    with torch.enable_grad():
        want = torch.autograd.grad(logits(model, prompt()).sum(), model.model.embed_tokens.weight)
        tessera.hf.patch(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.autograd.grad(
                logits(model, prompt()).sum(), model.model.embed_tokens.weight)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_the_bundled_model_gives_the_same_64_tokens():
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tessera.default_model(), dtype=torch.float32).eval()
    ids = torch.tensor([[0, 436, 1478]])
    arguments = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 64, "pad_token_id": 0,
                 "min_new_tokens": 64, "do_sample": False}
    want = model.generate(ids, **arguments).tolist()
    counts = {"attention": 6, "layer": 6, "linear": 0, "mlp": 6, "norm": 13}
    assert tessera.hf.patch(model) == counts
    assert model.generate(ids, **arguments).tolist() == want


def test_hidden_states_can_still_be_asked_for():
    model = make_model()
    want = model(prompt(), output_hidden_states=True).hidden_states
    tessera.hf.patch(model)
    got = model(prompt(), output_hidden_states=True).hidden_states
    assert len(got) == len(want) == 3
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_what_was_replaced_may_be_dropped():
    model = make_model()
    tessera.hf.patch(model, "int8", keep="nothing")
    assert not model._tessera_patch.replaced
    with pytest.raises(tessera.Error, match="keep='nothing'"):
        tessera.hf.unpatch(model)


@pytest.mark.parametrize("weights", ["int8", "e4m3", "int4_zero"])
def test_patched_weights_are_near_the_dense_ones(weights):
    model = make_model()
    want = logits(model, prompt())
    tessera.hf.patch(model, weights, group_size=32, exclude=("lm_head", "q_proj"))
    assert type(model.model.layers[0].self_attn.q_proj) is torch.nn.Linear
    bound = {"int8": 0.02, "e4m3": 0.06, "int4_zero": 0.15}[weights]
    assert (logits(model, prompt()) - want).abs().max() <= bound * want.abs().max()


@pytest.mark.parametrize("implementation", ["tessera", "sdpa"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_cache_in_pages_gives_the_same_tokens(implementation, batch):
    model = make_model()
    want = generated(model, prompt(batch))
    model.set_attn_implementation(implementation)
    cache = tessera.hf.TesseraCache(model.config, 64, page_size=16)
    assert generated(model, prompt(batch), cache) == want
    assert cache.get_seq_length() == 9 + 19


@pytest.mark.parametrize("kv", ["e4m3", "e5m2", "int8", "uint8", "int4", "int4_token"])
def test_a_quantised_cache_is_near_the_plain_one(kv):
    model = make_model()
    model.set_attn_implementation("tessera")
    ids = torch.randint(3, 64, (2, 50))
    want = logits(model, ids)
    sizes = {}
    for name in ("plain", kv):
        cache = tessera.hf.TesseraCache(model.config, 64, kv=name)
        first = logits(model, ids[:, :40], past_key_values=cache)
        rest = [logits(model, ids[:, i : i + 1], past_key_values=cache) for i in range(40, 50)]
        got = torch.cat([first, *rest], 1)
        bound = 1e-4 if name == "plain" else 0.3
        assert (got - want).abs().max() <= bound * want.abs().max(), name
        sizes[name] = cache.num_bytes
    assert sizes[kv] < sizes["plain"] / (1.5 if kv == "int4" else 2.5)


def test_beams_reorder_the_cache():
    model = make_model()
    arguments = {"attention_mask": torch.ones(1, 9), "max_new_tokens": 8, "num_beams": 3,
                 "do_sample": False, "pad_token_id": 0}
    want = model.generate(prompt(), **arguments).tolist()
    model.set_attn_implementation("tessera")
    cache = tessera.hf.TesseraCache(model.config, 64)
    assert model.generate(prompt(), past_key_values=cache, **arguments).tolist() == want


def test_refusals():
    model = make_model()
    with pytest.raises(tessera.Error, match="kv is 'int3'"):
        tessera.hf.TesseraCache(model.config, 64, kv="int3")
    with pytest.raises(tessera.Error, match="weights is 'int3'"):
        tessera.hf.patch(model, "int3")
    with pytest.raises(tessera.Error, match="kv is 'int3'"):
        tessera.hf.patch(model, kv="int3")
    with pytest.raises(tessera.Error, match="keep is 'here'"):
        tessera.hf.patch(model, keep="here")
    cache = tessera.hf.TesseraCache(model.config, 8)
    with pytest.raises(tessera.Error, match="holds 8 tokens"):
        logits(model, prompt(), past_key_values=cache)
