# A Llama with random weights in PyTorch, before and after Tessera's layers: for python_bars.py.
# SPDX-License-Identifier: MIT
"""With Transformers: its own model, before and after tessera.hf.patch. Without: a minimal Llama of
PyTorch's operations as Transformers has them, and the same layers of tessera.nn; records say so."""

import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {  # hidden, inter, layers, heads, KV heads, head_dim, vocab
    "llama3-8b": (4096, 14336, 32, 32, 8, 128, 128256),
    "tiny": (64, 96, 2, 4, 2, 16, 256),
}


def seconds_of(run, device):
    """Of one call, with the wait for its end."""
    wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    wait()
    begin = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - begin


def decode_rate(generate, device, num_tokens, rounds):
    """Tokens a second after the first: the time of num_tokens + 1 less that of 1; best round."""
    generate(num_tokens + 1)  # not counted: memory, kernels, graphs
    long = min(seconds_of(lambda: generate(num_tokens + 1), device) for _ in range(rounds))
    short = min(seconds_of(lambda: generate(1), device) for _ in range(rounds))
    return num_tokens / (long - short)


class WithTransformers:
    what = "transformers"

    def __init__(self, shape, device, dtype):
        from transformers import LlamaConfig, LlamaForCausalLM

        hidden, inter, layers, heads, kv_heads, head_dim, vocab = shape
        config = LlamaConfig(
            vocab_size=vocab, hidden_size=hidden, intermediate_size=inter,
            num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
            head_dim=head_dim, max_position_embeddings=16384, bos_token_id=1, eos_token_id=None,
            pad_token_id=0, tie_word_embeddings=False,
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                self.model = LlamaForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(before)

    def generate(self, ids, count):
        return self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
            do_sample=False, pad_token_id=0)

    def patch(self, **options):
        import tessera.hf

        return tessera.hf.patch(self.model, **options)

    def unpatch(self):
        import tessera.hf

        tessera.hf.unpatch(self.model)

    def num_replays(self):
        steps = self.model._tessera_patch.steps
        return steps.num_replays, str(steps._why_not or "")


class MinimalLayer(torch.nn.Module):
    """A decoder layer of PyTorch's operations, with keys and values joined to those before."""

    def __init__(self, hidden, inter, heads, kv_heads, d):
        super().__init__()
        sizes = {"q": (heads * d, hidden), "k": (kv_heads * d, hidden), "v": (kv_heads * d, hidden),
                 "o": (hidden, heads * d), "gate": (inter, hidden), "up": (inter, hidden),
                 "down": (hidden, inter)}
        for name, (rows, columns) in sizes.items():
            setattr(self, name, torch.nn.Linear(columns, rows, bias=False))
        self.norms = torch.nn.ParameterList([torch.ones(hidden) for _ in range(2)])
        self.d = d

    def norm(self, x, i):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return self.norms[i] * wide.to(x.dtype)

    def forward(self, x, cos, sin, cache):
        y = self.norm(x, 0)
        shape = (*x.shape[:2], -1, self.d)
        q, k, v = (part(y).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))

        def turn(z):
            a, b = z.chunk(2, -1)
            return z * cos + torch.cat((-b, a), -1) * sin

        q, k = turn(q), turn(k)
        if cache:
            k, v = (torch.cat(pair, 2) for pair in zip(cache[-1], (k, v)))
        cache[:] = [(k, v)]
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=x.shape[1] > 1, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))
        y = self.norm(x, 1)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


class TesseraLayer(torch.nn.Module):
    """The same layer of tessera.nn over pages."""

    def __init__(self, layer, weights):
        super().__init__()
        from tessera import nn

        self.d = layer.d
        both = torch.nn.Linear(layer.q.in_features, 1, bias=False, device="meta")
        parts = (layer.q, layer.k, layer.v)
        both.weight = torch.nn.Parameter(torch.cat([p.weight for p in parts]))
        both.out_features = both.weight.shape[0]
        self.sizes = [p.out_features // self.d for p in parts]
        self.qkv = nn.Linear.from_float(both, weights)
        self.out = nn.Linear.from_float(layer.o, weights)
        self.mlp = nn.GatedMlp.from_float(layer.gate, layer.up, layer.down, weights=weights)
        self.norms = torch.nn.ModuleList(
            [nn.RMSNorm(None, 1e-5, weight=weight) for weight in layer.norms])

    def forward(self, x, rope, pages):
        from tessera import _torch_ops as ops

        batch, tokens = x.shape[:2]
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, -1, self.d)
        q, k, v = qkv.split(self.sizes, 2)
        places = pages.extend(k, v, (q.reshape(-1, *q.shape[2:]), *rope))
        if tokens > 16:
            mixed = ops.attention_prefill(q, k, v, causal=True)
        else:
            mixed = pages.attend(q, places)
        x = x + self.out(mixed.reshape(batch, tokens, -1))
        return x + self.mlp(self.norms[1](x))


class Minimal:
    what = "a minimal Llama of this script, since transformers is not installed"

    def __init__(self, shape, device, dtype):
        hidden, inter, layers, heads, kv_heads, self.d, vocab = shape
        self.kv_heads, self.device, self.dtype = kv_heads, device, dtype
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device):
                self.embedding = torch.nn.Embedding(vocab, hidden)
                self.layers = [MinimalLayer(hidden, inter, heads, kv_heads, self.d)
                               for _ in range(layers)]
                self.head = torch.nn.Linear(hidden, vocab, bias=False)
        finally:
            torch.set_default_dtype(before)
        self.is_patched, self.recorded, self.replays = False, {}, 0

    def turns(self, positions):
        power = torch.arange(0, self.d, 2, device=self.device) / self.d
        angles = positions[:, None].float() * 500000.0 ** -power
        return angles.cos(), angles.sin()

    def step(self, ids, positions, caches):
        x = self.embedding(ids)
        cos, sin = self.turns(positions)
        if self.is_patched:
            rope = (torch.arange(ids.shape[1], device=self.device), torch.cat((cos, sin), -1))
            for layer, pages in zip(self.patched, caches):
                x = layer(x, rope, pages)
        else:
            cos, sin = (torch.cat((y, y), -1).to(x.dtype) for y in (cos, sin))
            for layer, cache in zip(self.layers, caches):
                x = layer(x, cos, sin, cache)
        return self.head(x[:, -1:])

    def caches(self, max_len):
        if not self.is_patched:
            return [[] for _ in self.layers]
        from tessera._pages import Schedule, SequencePages

        self.schedule = Schedule()
        return [SequencePages(1, max_len, self.kv_heads, self.d, dtype=self.dtype,
                              device=self.device, schedule=self.schedule) for _ in self.layers]

    def generate(self, ids, count):
        length = ids.shape[1]
        max_len = -(-(length + count) // 256) * 256
        is_graph = self.is_patched and self.device != "cpu"
        known = self.recorded.get(max_len) if is_graph else None
        caches = known.caches if known else self.caches(max_len)
        for pages in caches if self.is_patched else ():
            pages.length = 0
        positions = torch.arange(length, device=self.device)
        token = self.step(ids, positions, caches).argmax(-1)
        for i in range(length, length + count - 1):
            if is_graph:
                known = known or self.recorded.setdefault(max_len, Graph(self, caches, max_len))
                logits = known.run(token, i)
                self.replays += 1
            else:
                logits = self.step(token, torch.tensor([i], device=self.device), caches)
            token = logits.argmax(-1)
            bool((token == -1).any())  # generate reads the end of sequences at each step
        return token

    def patch(self, weights="plain", **_):
        self.patched = [TesseraLayer(layer, weights) for layer in self.layers]
        self.is_patched = True
        if weights != "plain":
            self.layers = [None] * len(self.layers)
        return {"layers": len(self.patched)}

    def unpatch(self):
        self.is_patched, self.patched, self.recorded = False, None, {}

    def num_replays(self):
        return self.replays, ""


class Graph:
    """A step of one token, captured."""

    def __init__(self, model, caches, longest):
        from tessera._hf_record import record_cuda

        self.caches = caches
        self.token = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
        self.position = torch.full((1,), caches[0].length, dtype=torch.int64, device="cuda")

        def step(token, position):
            lens = (position + 1).to(torch.int32)
            model.schedule.fixed = caches[0].places_at(position, lens, longest)
            try:
                return model.step(token, position, caches)
            finally:
                model.schedule.fixed = None

        self.replay, self.logits = record_cuda(step, (self.token, self.position), None)

    def run(self, token, position):
        self.token.copy_(token)
        self.position.fill_(position)
        self.replay()
        return self.logits


def same_tokens(record, device):
    """Greedy tokens of the bundled model before and after patch, 64 steps."""
    import tessera
    import tessera.hf
    from transformers import AutoModelForCausalLM

    folder = tessera.default_model()
    for dtype in (torch.float32, torch.bfloat16):
        if device == "cpu" and dtype == torch.bfloat16:
            continue
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        ids = torch.tensor([[0, 436, 1478, 300, 77, 812]], device=device)

        def tokens():
            return model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=64, min_new_tokens=64,
                do_sample=False, pad_token_id=0)[0, ids.shape[1]:].tolist()

        before = tokens()
        tessera.hf.patch(model)
        after = tokens()
        equal = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), len(before))
        steps = model._tessera_patch.steps
        record.add("greedy", model="tessera-13m", dtype=str(dtype), steps=64, equal_steps=equal,
                   replays=steps.num_replays, graph_problem=str(steps._why_not or ""))


def run(record, options, median_ms):
    """Bar 1: decode 4 times, prefill 1.25 times as fast, and at most 6.5 GB with int4 weights."""
    device = options.device
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    name = "tiny" if options.tiny else "llama3-8b"
    try:
        import transformers  # noqa: F401

        kind = WithTransformers
    except ImportError:
        kind = Minimal
    with torch.no_grad():
        torch.manual_seed(0)
        model = kind(SHAPES[name], device, dtype)
        ids = torch.randint(3, SHAPES[name][-1], (1, 8 if options.tiny else 512), device=device)
        long = torch.randint(
            3, SHAPES[name][-1], (1, 64 if options.tiny else 8192), device=device)
        count, rounds = (8, 1) if options.tiny else (64, 2)
        shared = {"model": name, "dtype": str(dtype), "of": model.what}

        def decode(rounds=rounds):
            return decode_rate(lambda n: model.generate(ids, n), device, count, rounds)

        def prefill():
            return median_ms(lambda: model.generate(long, 1), device, repeats=5, warmup=2)

        eager_rate, eager_ms = decode(), prefill()
        record.add("patch/eager", **shared, tokens_per_second=round(eager_rate, 2), ms=eager_ms)
        replaced = model.patch()
        rate = decode()
        replays, problem = model.num_replays()
        record.add(
            "patch/decode", **shared, prompt=ids.shape[1], tokens=count,
            eager_tokens_per_second=round(eager_rate, 2), tokens_per_second=round(rate, 2),
            ratio=round(rate / eager_rate, 3), bar_ratio=4, replaced=replaced,
            replayed_steps=replays, graph_problem=problem,
        )
        ms = prefill()
        record.add(
            "patch/prefill", **shared, prompt=long.shape[1], eager_ms=eager_ms, ms=ms,
            ratio=round(eager_ms / ms, 3), bar_ratio=1.25,
        )
        model.unpatch()
        model.patch(weights="int4", keep="nothing")
        rate = decode(1)
        more = {}
        if device != "cpu":
            import gc

            gc.collect()
            torch.cuda.empty_cache()
            more = {"memory_gb": round(torch.cuda.memory_allocated() / 1e9, 3), "bar_gb": 6.5}
        record.add("patch/int4", **shared, tokens_per_second=round(rate, 2), **more)
        if kind is WithTransformers:
            same_tokens(record, device)
