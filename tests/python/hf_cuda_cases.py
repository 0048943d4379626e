# Modules, patched Transformers models and graphs on a GPU; test_hf_cuda.py and
# tools/python_cuda_cases.py run the cases.
# SPDX-License-Identifier: MIT
import functools
import importlib.util
import warnings

import tessera
import torch
from tessera import nn


def near(got, want, bound=3e-2):
    worst = (got.float() - want.float()).abs().max()
    assert worst <= bound * want.float().abs().max(), (worst, want.abs().max())


def bf16(*shape):
    return torch.randn(*shape, device="cuda").bfloat16()


def case_linear(weights):
    linear = torch.nn.Linear(512, 256, device="cuda", dtype=torch.bfloat16)
    ours = nn.Linear.from_float(linear, weights)
    for rows in (1, 7, 64, 300):
        x, residual = bf16(rows, 512), bf16(rows, 256)
        got = ours(x, residual)
        dense = ours.dense_weight(torch.bfloat16)
        near(got, torch.nn.functional.linear(x, dense, linear.bias) + residual)


def case_block_in_a_graph(weights):
    mlp = nn.GatedMlp(512, 1024, weights=weights, device="cuda", dtype=torch.bfloat16)
    attention = nn.Attention(512, 8, 2, rope=nn.RotaryEmbedding(64, device="cuda"),
                             weights=weights, device="cuda", dtype=torch.bfloat16)
    norm = nn.RMSNorm(512, device="cuda", dtype=torch.bfloat16)
    x = bf16(1, 40, 512)

    def step():
        y = x + attention(norm(x))
        return y + mlp(norm(y))

    want = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    x.copy_(bf16(1, 40, 512))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, step()) and not torch.equal(out, want)


def case_other_weights_fall_back():
    from tessera._torch_weights import _told

    _told.clear()
    ours = nn.Linear(256, 128, weights="int8", device="cuda", dtype=torch.bfloat16)
    x = bf16(3, 256)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = ours(x)
    near(got, torch.nn.functional.linear(x, ours.dense_weight(torch.bfloat16), ours.bias))
    assert len(seen) <= 1  # none where the GPU has a kernel for it


def model_of(dtype, **more):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        tessera.default_model(), dtype=dtype, **more)
    return model.cuda().eval()


def tokens_of(model, ids, count=64, **more):
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
        do_sample=False, pad_token_id=0, **more)[:, ids.shape[1]:].tolist()


PROMPT = [[0, 436, 1478, 300, 77, 812], [0, 12, 99, 1500, 44, 3]]


def case_same_64_tokens(batch):
    model = model_of(torch.float32)
    ids = torch.tensor(PROMPT[:batch], device="cuda")
    want = tokens_of(model, ids)
    import tessera.hf

    tessera.hf.patch(model)
    steps = model._tessera_patch.steps
    assert tokens_of(model, ids) == want
    assert steps._why_not is None and steps.num_replays == 63
    assert tokens_of(model, ids) == want
    tessera.hf.unpatch(model)
    assert tokens_of(model, ids) == want


def case_graphs_give_the_tokens_of_single_calls(kv):
    import tessera.hf

    ids = torch.tensor(PROMPT, device="cuda")
    found = []
    for graphs in (False, True):
        model = model_of(torch.bfloat16)
        tessera.hf.patch(model, kv=kv, graphs=graphs)
        found.append(tokens_of(model, ids))
    assert found[0] == found[1] and model._tessera_patch.steps.num_replays == 63


def case_int4_weights_take_less_memory():
    import tessera.hf

    torch.cuda.empty_cache()
    model = model_of(torch.bfloat16)
    before = sum(p.numel() * p.element_size() for p in model.model.layers.parameters())
    tessera.hf.patch(model, "int4")
    state = [*model.model.layers.parameters(), *model.model.layers.buffers()]
    after = sum(t.numel() * t.element_size() for t in state)
    assert after < before / 3
    assert len(tokens_of(model, torch.tensor(PROMPT[:1], device="cuda"), 8)[0]) == 8
    tessera.hf.unpatch(model)
    assert next(model.model.layers.parameters()).is_cuda


def case_compiled_block():
    import tessera.torch  # noqa: F401

    x, weight = bf16(16, 512), bf16(512)
    b = bf16(1024, 512)
    ops = torch.ops.tessera

    def step(x):
        return ops.silu(ops.gemm(ops.rms_norm(x, weight), b, is_b_static=True))

    compiled = torch.compile(step, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(x), step(x))


def _guarded(case):
    """Seeded, without gradients; a fall-back to PyTorch would hide a fault, so it is an error."""

    def run():
        torch.manual_seed(3)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("error", message="tessera: ")
            case()

    return run


def _cases():
    found = {
        "other_weights_fall_back": case_other_weights_fall_back,
        "compiled_block": case_compiled_block,
    }
    for weights in ("plain", "int4", "int4_zero"):
        found[f"linear_{weights}"] = functools.partial(case_linear, weights)
    for weights in ("plain", "int4"):
        found[f"block_in_a_graph_{weights}"] = functools.partial(case_block_in_a_graph, weights)
    if importlib.util.find_spec("transformers") is None:
        return found
    for batch in (1, 2):
        found[f"same_64_tokens_{batch}"] = functools.partial(case_same_64_tokens, batch)
    for kv in ("plain", "e4m3", "int8", "int4"):
        case = functools.partial(case_graphs_give_the_tokens_of_single_calls, kv)
        found[f"graphs_and_single_calls_{kv}"] = case
    found["int4_memory"] = case_int4_weights_take_less_memory
    return found


CASES = {name: _guarded(case) for name, case in _cases().items()}
