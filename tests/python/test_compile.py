# torch.compile(fullgraph=True) over modules of tessera.nn and patched models, on the CPU.
# SPDX-License-Identifier: MIT
import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.library, "custom_op"):
    pytest.skip("torch.ops.tessera needs PyTorch 2.4 or newer", allow_module_level=True)
from tessera import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402


@pytest.fixture(autouse=True)
def inference():
    torch.manual_seed(5)
    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad():
        yield


def expect_one_graph(function, *inputs, bound=1e-5):
    """The compiled function gives what the plain one gives, in one graph."""
    want = function(*inputs)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), want, rtol=bound, atol=bound)
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1


class Block(torch.nn.Module):
    """Norms, rotary embeddings, attention and products: five operations of ours, eight calls."""

    def __init__(self, weights):
        super().__init__()
        more = {"weights": weights, "group_size": 32}
        self.norms = torch.nn.ModuleList([nn.RMSNorm(64), nn.RMSNorm(64)])
        rope = nn.RotaryEmbedding(16)
        self.attention = nn.Attention(64, 4, 2, rope=rope, **more)
        self.mlp = nn.GatedMlp(64, 96, **more)

    def forward(self, x):
        mixed = self.attention(self.norms[0](x))
        y, x = self.norms[1](mixed, x)
        return x + self.mlp(y)


@pytest.mark.parametrize("weights", ["plain", "int8", "int4_zero"])
def test_a_block_is_one_graph(weights):
    expect_one_graph(Block(weights).eval(), torch.randn(2, 5, 64))


def test_the_graph_calls_our_operations():
    found = []

    def backend(module, inputs):
        names = {str(node.target) for node in module.graph.nodes if node.op == "call_function"}
        found.extend(name for name in names if name.startswith("tessera."))
        return module.forward

    torch.compile(Block("plain").eval(), backend=backend, fullgraph=True)(torch.randn(1, 3, 64))
    assert {name.split(".")[1] for name in found} == {
        "rms_norm", "add_rms_norm", "rope", "attention_prefill", "gemm"}


def test_gradients_are_pytorchs_in_a_graph_as_well():
    block, x = Block("plain"), torch.randn(1, 3, 64)
    with torch.enable_grad():
        compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
        compiled(x).sum().backward()
    got = block.mlp.down.weight.grad
    assert got is not None and got.isfinite().all() and got.any()


def test_a_patched_model_is_one_graph():
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "AttentionInterface"):
        pytest.skip("this Transformers has no attention interface")
    import tessera.hf
    from test_hf import make_model, prompt

    model, ids = make_model(), prompt(2)
    want = model(ids, use_cache=False).logits
    tessera.hf.patch(model)

    def run(ids):
        return model(ids, use_cache=False).logits

    expect_one_graph(run, ids)
    torch.testing.assert_close(run(ids), want, rtol=1e-4, atol=1e-4)


def test_a_patched_model_with_pages_is_one_graph():
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("Transformers before 5 reads positions while it is traced")
    import tessera.hf
    from test_hf import make_model, prompt

    model, ids = make_model(), prompt()
    tessera.hf.patch(model)

    def run(compiled):
        cache = tessera.hf.TesseraCache(model.config, 64)
        model(ids, past_key_values=cache)
        return [compiled(torch.tensor([[7 + i]]), past_key_values=cache).logits for i in range(3)]

    want = run(model)
    got = run(torch.compile(model, backend="aot_eager", fullgraph=True))
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert not counters["graph_break"]
