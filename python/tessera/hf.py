# Hugging Face Transformers on Tessera: attention, layers in place, and a cache in pages.
# SPDX-License-Identifier: MIT
"""`import tessera.hf`, then either of these, or both:

model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="tessera")
tessera.hf.patch(model, weights="int8")   # and tessera.hf.unpatch(model)
model.generate(**inputs, past_key_values=tessera.hf.TesseraCache(model.config, 2048, kv="int8"))
"""

import inspect

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import tessera

from . import nn
from ._library import Error
from ._pages import FORMATS, SequencePages
from ._torch_weights import check_weights, served, tell_once

__all__ = ["TesseraCache", "patch", "unpatch"]

MAX_DECODE_TOKENS = 16  # that attention_decode takes of a sequence


def _intervals_of(mask):
    """A mask [batch, 1, q_len, kv_len] as int32 [batch, q_len, 1, 2]; None if it is no interval."""
    known = getattr(mask, "tessera_intervals", None)
    if known is not None:
        return known[0]
    seen = mask if mask.dtype == torch.bool else mask >= 0
    kv_len = seen.shape[-1]
    count = seen.sum(-1)
    begin = torch.where(count > 0, seen.to(torch.int8).argmax(-1), 0)
    end = torch.where(count > 0, kv_len - seen.flip(-1).to(torch.int8).argmax(-1), 0)
    is_interval = seen.shape[1] == 1 and bool((end - begin == count).all())
    found = torch.stack((begin, end), -1).to(torch.int32)[:, 0, :, None] if is_interval else None
    mask.tessera_intervals = (found,)  # all layers of a step get the same mask
    return found


def _prefill(query, key, value, mask, options, is_causal):
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if mask is None:
        return tessera.attention_prefill(q, k, v, causal=is_causal and q.shape[1] > 1, **options)
    intervals = _intervals_of(mask[..., : k.shape[1]] if mask.shape[-1] > k.shape[1] else mask)
    if intervals is None:
        raise Error("a mask in which a query sees several runs of keys")
    intervals = intervals.expand(q.shape[0], -1, -1, -1).contiguous()
    return tessera.attention_prefill(q, k, v, intervals=intervals, **options)


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
    softcap=None, s_aux=None, **kwargs,
):
    """Attention in the form that Transformers calls: heads before tokens in, tokens first out."""
    pages = getattr(key, "tessera_pages", None)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options = {"scale": scaling, "softcap": softcap or None}
    if s_aux is not None:
        options["sinks"] = s_aux.float()

    def run():
        if dropout > 0:
            raise Error("dropout is wanted")
        short = query.shape[2] <= MAX_DECODE_TOKENS
        if pages is not None and attention_mask is None and short and causal:
            return pages.attend(query.transpose(1, 2), **options)
        return _prefill(query, *whole(), attention_mask, options, causal)

    def whole():
        if pages is None or pages.kv == "plain":
            return key, value
        return tuple(x.transpose(1, 2) for x in pages.whole())

    def fall_back():
        more = {"softcap": softcap} if softcap else {}
        return sdpa_attention_forward(
            module, query, *whole(), attention_mask, dropout=dropout, scaling=scaling,
            is_causal=is_causal, **more, **kwargs,
        )[0]

    return served("attention", run, fall_back, query, key, value), None


AttentionInterface.register("tessera", attention_forward)
AttentionMaskInterface.register("tessera", sdpa_mask)


class _PagedLayer(CacheLayerMixin):
    """The keys and values of one layer in pages, allocated when the first tokens come."""

    is_sliding = False
    is_croppable = False

    def __init__(self, max_len, kv, page_size, is_read_in_place):
        super().__init__()
        self.max_len, self.kv, self.page_size = max_len, kv, page_size
        self.is_read_in_place = is_read_in_place
        self.pages = None

    def lazy_initialization(self, key_states, value_states=None):
        batch, heads, _, head_dim = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        self.pages = SequencePages(
            batch, self.max_len, heads, head_dim, kv=self.kv, page_size=self.page_size,
            dtype=self.dtype, device=self.device,
        )
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        with torch.no_grad():
            self.pages.extend(*(x.transpose(1, 2) for x in (key_states, value_states)))
            if self.kv != "plain" and self.is_read_in_place:
                # Attention reads the pages themselves: shapes are all that is asked of these.
                shape = (*key_states.shape[:2], self.pages.length, key_states.shape[3])
                keys = values = key_states.new_zeros(1).expand(shape)
            else:
                keys, values = (x.transpose(1, 2) for x in self.pages.whole())
        keys.tessera_pages = self.pages
        return keys, values

    def get_mask_sizes(self, query_length, *args):
        if not isinstance(query_length, int):  # positions of the queries, before Transformers 5
            query_length = query_length.shape[0]
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self, *args):
        return 0 if self.pages is None else self.pages.length

    def get_max_length(self):
        return self.max_len

    def get_max_cache_shape(self):
        return self.max_len

    def reset(self):
        if self.pages is not None:
            self.pages.length = 0

    def crop(self, max_length):
        if self.kv == "int4":
            raise Error("a cache with kv int4 cannot be shortened: its newest keys are in a tail")
        kept = max_length if max_length >= 0 else self.get_seq_length() + max_length
        if self.pages is not None and kept < self.pages.length:
            self.pages.length = kept

    def reorder_cache(self, beam_idx):
        if self.pages is not None:
            self.pages.select(beam_idx.to(self.pages.k.device))

    def batch_select_indices(self, indices):
        self.reorder_cache(indices)


class TesseraCache(Cache):
    """Keys and values in pages that are allocated once, in any of Tessera's formats.

    config: of the model. max_len: most tokens of a sequence. kv: "plain", "e4m3", "e5m2", "int8",
    "uint8", "int4" (keys by column, values by row) or "int4_token". With
    attn_implementation="tessera" new tokens are attended to in the pages; other implementations
    get a copy in the model's type.
    """

    def __init__(self, config, max_len, *, kv="plain", page_size=32):
        if kv not in FORMATS:
            raise Error(f"kv is {kv!r}; want one of {', '.join(FORMATS)}")
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        in_place = getattr(text, "_attn_implementation", None) == "tessera"
        layers = [_PagedLayer(max_len, kv, page_size, in_place)
                  for _ in range(text.num_hidden_layers)]
        more = {"layers": layers} if "layers" in inspect.signature(Cache).parameters else {}
        super().__init__(**more)
        self.kv = kv

    @property
    def num_bytes(self):
        """Of all pages that exist, with scales and tails."""
        return sum(layer.pages.num_bytes for layer in self.layers if layer.pages is not None)


def _eps_of(module):
    for name in ("variance_epsilon", "eps"):
        if isinstance(getattr(module, name, None), float):
            return getattr(module, name)
    return None


def _norm_of(module):
    """An RMSNorm in place of a module that computes one, or None: found out by computing both."""
    names = [name for name, _ in module.named_parameters()]
    eps = _eps_of(module)
    if "rmsnorm" not in type(module).__name__.lower() or names != ["weight"] or eps is None:
        return None
    norm = nn.RMSNorm(None, eps, weight=module.weight)
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(3, module.weight.shape[0], generator=generator).to(module.weight)
    with torch.no_grad():
        return norm if torch.allclose(norm(probe), module(probe), rtol=2e-2, atol=2e-2) else None


_ACTIVATION_NAMES = {"silu": "silu", "swish": "silu", "gelu": "gelu",
                     "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


def _mlp_of(module, name, config, weights, group_size):
    """A GatedMlp in place of gate_proj, up_proj and down_proj, or None."""
    parts = [getattr(module, part, None) for part in ("gate_proj", "up_proj", "down_proj")]
    if not all(type(part) is torch.nn.Linear and part.bias is None for part in parts):
        return None
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    activation = _ACTIVATION_NAMES.get(getattr(text, "hidden_act", None))
    if activation is None or parts[0].out_features % 8:
        tell_once(name, "its activation or its width has no gated product")
        return None
    return nn.GatedMlp.from_float(
        *parts, activation=activation, weights=weights, group_size=group_size)


def patch(model, weights="plain", *, group_size=128, attention=True, exclude=("lm_head",)):
    """Replaces layers of a Transformers model by Tessera's, in place; how many of each kind.

    Linear layers get weights in the format `weights` (tessera.nn.WEIGHTS), except those whose name
    contains a string of `exclude`; gated MLPs become one product, RMS norms one kernel, and
    attention "tessera" unless attention is False. The layers replaced are kept for unpatch.
    """
    check_weights(weights)
    if hasattr(model, "_tessera_patch"):
        raise Error("the model is patched already; unpatch it first")
    replaced, counts = [], {"linear": 0, "mlp": 0, "norm": 0}

    def replace(parent, name, module, new, kind):
        setattr(parent, name, new.train(module.training))
        replaced.append((parent, name, module))
        counts[kind] += 1

    def visit(parent, path):
        for name, module in list(parent.named_children()):
            where = f"{path}.{name}" if path else name
            if any(word in where for word in exclude):
                continue
            mlp = _mlp_of(module, where, model.config, weights, group_size)
            norm = None if mlp is not None else _norm_of(module)
            if mlp is not None:
                replace(parent, name, module, mlp, "mlp")
            elif norm is not None:
                replace(parent, name, module, norm, "norm")
            elif type(module) is torch.nn.Linear:
                linear = nn.Linear.from_float(module, weights, group_size)
                replace(parent, name, module, linear, "linear")
            else:
                visit(module, where)

    before = model.config._attn_implementation
    visit(model, "")
    if attention:
        model.set_attn_implementation("tessera")
    model._tessera_patch = (replaced, before)
    return counts


def unpatch(model):
    """Puts back what patch has replaced."""
    if not hasattr(model, "_tessera_patch"):
        raise Error("the model is not patched")
    replaced, attention = model._tessera_patch
    for parent, name, module in replaced:
        setattr(parent, name, module)
    if attention is not None:
        model.set_attn_implementation(attention)
    del model._tessera_patch
