# The KV cache in torch.ops.tessera: what is written, and that steps of decoding trace.
# SPDX-License-Identifier: MIT
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402

if not hasattr(torch.library, "custom_op"):
    pytest.skip("torch.ops.tessera needs PyTorch 2.4 or newer", allow_module_level=True)

import tessera.torch  # noqa: E402, F401

DEVICES = ["cpu"] + ["cuda"] * (torch.cuda.is_available() and tessera.num_cuda_devices() > 0)
OPS = torch.ops.tessera
HEADS, D, PAGE, NUM_PAGES = 2, 64, 32, 4


def normal(shape, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


class Case:
    """New tokens, and a cache with keys in 4 bits by column and values in 8 by row."""

    def __init__(self, device):
        def ints(x):
            return torch.tensor(x, device=device, dtype=torch.int32)

        self.k, self.v, self.q = (normal((34, n, D), device, n) for n in (HEADS, HEADS, 6))
        self.v = self.v + 1
        self.slots, self.tail_slots = ints([*range(96, 128), 1, 2]), ints([*range(32), 1, 2])
        self.positions, self.table = ints(range(34)), tessera.make_rope_table(40, D, like=self.q)
        self.k_pages = torch.zeros(NUM_PAGES, PAGE, HEADS, D // 2, dtype=torch.uint8, device=device)
        self.v_pages = torch.zeros(NUM_PAGES, PAGE, HEADS, D, dtype=torch.int8, device=device)
        self.k_scales = torch.zeros(NUM_PAGES, 1, HEADS, D, 2, dtype=torch.half, device=device)
        self.v_scales = torch.zeros(NUM_PAGES, PAGE, HEADS, 1, dtype=torch.half, device=device)
        self.k_tail = torch.zeros(2, 32, HEADS, D, device=device)
        self.lens, self.starts = ints([32]), ints([1])
        self.page_table, self.tails = ints([[3]]), ints([0])
        self.rows = [torch.zeros(34, HEADS, D, device=device) for _ in range(2)]
        self.pages = ints([3, 0]), ints([1, 2])

    def written(self):
        cache = self.k_pages, self.v_pages, self.k_scales, self.v_scales, self.k_tail
        return [self.k, self.q, *cache, *self.rows]

    def appended(self):
        return self.k, self.v, self.slots, self.k_pages, self.v_pages

    def scales(self):
        return {"k_scales": self.k_scales, "v_scales": self.v_scales, "k_format": "i4"}

    def tail(self):
        return {"k_tail": self.k_tail, "tail_slots": self.tail_slots}

    def rope(self):
        rope = {"rope_q": self.q, "rope_positions": self.positions, "rope_table": self.table}
        return {**rope, "rope_style": "interleaved"}

    def read(self):
        return self.k_pages, self.v_pages, self.lens, self.starts, *self.rows

    def cache(self):
        tail = {"k_tail": self.k_tail, "tails": self.tails}
        return {"page_table": self.page_table, **self.scales(), **tail}


def run(ops, case, append_rope):
    """All operations, of torch.ops.tessera or of the package."""
    ops.kv_append(*case.appended(), **case.scales(), **case.tail())
    append_rope(*case.appended(), **case.scales(), **case.tail(), **case.rope())
    ops.kv_gather(*case.read(), **case.cache())
    ops.kv_copy_pages(case.k_pages, case.v_pages, *case.pages, **case.scales())


@pytest.mark.parametrize("device", DEVICES)
def test_writes_what_the_package_writes(device):
    got, want = Case(device), Case(device)
    run(OPS, got, OPS.kv_append_rope)
    run(tessera, want, tessera.kv_append)
    for a, b, before in zip(got.written(), want.written(), Case(device).written()):
        assert torch.equal(a, b) and not torch.equal(a, before)
    assert torch.equal(got.k_pages[1], got.k_pages[3]) and got.k_pages[3].any()


@pytest.mark.parametrize("device", DEVICES)
def test_keys_without_a_rotation_are_read_only(device):
    case = Case(device)
    before = case.k._version, case.k_pages._version, case.k_scales._version
    OPS.kv_append(*case.appended(), **case.scales(), **case.tail())
    after = case.k._version, case.k_pages._version, case.k_scales._version
    assert after[0] == before[0] and after[1] > before[1] and after[2] > before[2]
    OPS.kv_append_rope(*case.appended(), **case.scales(), **case.tail(), **case.rope())
    assert case.k._version > before[0]


@pytest.mark.parametrize("device", DEVICES)
def test_the_schemas_and_fakes_hold(device):
    case = Case(device)
    format = {"k_format": "i4"}
    scales = case.k_scales, case.v_scales, case.k_tail
    rope = case.q, case.positions, case.table
    samples = {
        "kv_append": ((*case.appended(), *scales, case.tail_slots), format),
        "kv_append_rope": ((*case.appended(), *rope, *scales, case.tail_slots), format),
        "kv_gather": ((*case.read(), case.page_table, *scales, case.tails), format),
        "kv_copy_pages": ((case.k_pages, case.v_pages, *case.pages, *scales[:2]), format),
    }
    for name, (args, kwargs) in samples.items():
        utilities = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
        torch.library.opcheck(getattr(OPS, name).default, args, kwargs, test_utils=utilities)


@pytest.mark.parametrize("device", DEVICES)
def test_scratch_memory_of_a_cascade_is_written_where_it_is_given(device):
    pages = [normal((2, 8, HEADS, D), device, seed) for seed in range(2)]
    q, lens = normal((2, 6, D), device, 6), torch.tensor([8, 3], dtype=torch.int32, device=device)
    given = torch.zeros(3, 2, 6, D, device=device), torch.zeros(3, 2, 6, device=device)
    tensors = q, *pages, lens, *pages, lens.flip(0).contiguous()
    want = tessera.attention_cascade(*tensors)
    before = [x._version for x in (*tensors, *given)]
    got = OPS.attention_cascade(*tensors, parts=given[0], part_lses=given[1])
    after = [x._version for x in (*tensors, *given)]
    assert torch.equal(got, want) and given[0].any() and given[1].any()
    assert after[:7] == before[:7] and all(a > b for a, b in zip(after[7:], before[7:]))
    args = *tensors, *[None] * 12, *given
    utilities = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(OPS.attention_cascade_lse.default, args, test_utils=utilities)


def test_a_step_over_shared_keys_traces():
    """With any number of sequences and of shared pieces."""

    def step(q, k_pages, v_pages, lens, shared_k, shared_v, piece_lens, longest):
        tensors = q, k_pages, v_pages, lens, shared_k, shared_v, piece_lens
        out, lse = OPS.attention_cascade_lse(*tensors, longest=longest)
        both = OPS.attention_merge(torch.stack([out, out]), torch.stack([lse, lse]))
        return both * 2

    traced = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for batch, num_pieces in ((2, 3), (5, 2)):
        q, own = normal((batch, 6, D), "cpu", 1), normal((2, batch, 8, HEADS, D), "cpu", 2)
        shared = normal((2, num_pieces, 16, HEADS, D), "cpu", 3)
        lens = torch.arange(batch, dtype=torch.int32)
        tensors = q, *own, lens, *shared, torch.full((num_pieces,), 9, dtype=torch.int32)
        want = tessera.attention_cascade(*tensors) * 2
        got = traced(*tensors, batch)
        assert torch.allclose(got, want, atol=2e-6), f"{batch} sequences, {num_pieces} pieces"


def test_a_step_of_decoding_traces_and_writes_its_cache():
    """Functionalization copies arguments that the schema does not mark as written."""
    pages = [torch.zeros(2, 8, HEADS, D) for _ in range(2)]
    slots = torch.arange(16)

    def step(q, k, v, slot, lens, k_pages, v_pages, longest):
        OPS.kv_append(k, v, slot, k_pages, v_pages)
        return OPS.attention_decode(q, k_pages, v_pages, lens, longest=longest) * 2

    traced = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    want_pages = [x.clone() for x in pages]
    for i in range(3):
        q, k, v = (normal((2, n, D), "cpu", 10 * i + n) for n in (6, HEADS, HEADS))
        where = slots[[i, 8 + i]], torch.full((2,), i + 1, dtype=torch.int32)
        got = traced(q, k, v, *where, *pages, i + 1)
        tessera.kv_append(k, v, where[0], *want_pages)
        want = tessera.attention_decode(q, *want_pages, where[1]) * 2
        assert torch.equal(got, want), f"step {i}"
        for a, b in zip(pages, want_pages):
            assert torch.equal(a, b), f"step {i}"
