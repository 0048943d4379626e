# Attention of Transformers on Tessera: the registered function, and a module in place of a model's.
# SPDX-License-Identifier: MIT
"""attn_implementation="tessera", and what tessera.hf.patch puts in place of attention modules."""

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function, sdpa_mask

from . import _torch_ops as ops
from . import nn
from ._hf_cache import PagedLayer
from ._library import Error
from ._torch_weights import served, tell_once

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
        return ops.attention_prefill(q, k, v, causal=is_causal and q.shape[1] > 1, **options)
    intervals = _intervals_of(mask[..., : k.shape[1]] if mask.shape[-1] > k.shape[1] else mask)
    if intervals is None:
        raise Error("a mask in which a query sees several runs of keys")
    intervals = intervals.expand(q.shape[0], -1, -1, -1).contiguous()
    return ops.attention_prefill(q, k, v, intervals=intervals, **options)


def _in_pytorch(module, query, key, value, mask, is_causal, more):
    """PyTorch's attention. Its own causal mask is for as many queries as keys."""
    q_len, kv_len = query.shape[2], key.shape[2]
    if mask is None and is_causal and 1 < q_len < kv_len:
        mask = torch.ones(q_len, kv_len, dtype=torch.bool, device=query.device)
        mask = mask.tril(kv_len - q_len)[None, None]
    return sdpa_attention_forward(module, query, key, value, mask, is_causal=is_causal, **more)[0]


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
    softcap=None, s_aux=None, **kwargs,
):
    """Attention in the form that Transformers calls: heads before tokens in, tokens first out."""
    pages, places = (None, None) if ops.is_tracing() else getattr(
        key, "tessera_pages", (None, None))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options = {"scale": scaling, "softcap": softcap or None}
    if s_aux is not None:
        options["sinks"] = s_aux.float()

    def run():
        if dropout > 0:
            raise Error("dropout is wanted")
        short = query.shape[2] <= MAX_DECODE_TOKENS
        if pages is not None and attention_mask is None and short and causal:
            return pages.attend(query.transpose(1, 2), places, **options)
        return _prefill(query, *whole(), attention_mask, options, causal)

    def whole():
        if pages is None or pages.kv == "plain":
            return key, value
        return tuple(x.transpose(1, 2) for x in pages.whole())

    def fall_back():
        more = {"dropout": dropout, "scaling": scaling, **kwargs}
        if softcap:
            more["softcap"] = softcap
        return _in_pytorch(module, query, *whole(), attention_mask, causal, more)

    # Whether a mask is one interval for each query cannot be known while PyTorch traces.
    if ops.is_tracing() and (attention_mask is not None or dropout > 0):
        return fall_back(), None
    return served("attention", run, fall_back, query, key, value), None


def attention_mask(*args, **given):
    """Transformers' mask, or None where queries see all earlier keys and nothing is padded."""
    is_causal = given.get("mask_function", causal_mask_function) is causal_mask_function
    is_whole = given.get("attention_mask") is None and given.get("local_size") is None
    if not args and is_causal and is_whole and given.get("allow_is_causal_skip", True):
        begin, count = given.get("q_offset", 0), given.get("q_length")
        if isinstance(begin, int) and isinstance(count, int) and not given.get("kv_offset", 0):
            if begin + count == given["kv_length"]:
                return None
    return sdpa_mask(*args, **given)


AttentionInterface.register("tessera", attention_forward)
AttentionMaskInterface.register("tessera", attention_mask)


def _rotation(cos, sin, batch):
    """(positions, table) that `rope` takes, of cosines and sines [1 or batch, tokens, size]."""
    known = None if ops.is_tracing() else getattr(cos, "tessera_rotation", None)
    if known is not None and known[0] == batch:
        return known[1]
    half = cos.shape[-1] // 2
    table = torch.cat((cos[..., :half], sin[..., :half]), -1).float().reshape(-1, 2 * half)
    positions = torch.arange(table.shape[0], device=cos.device)
    if cos.shape[0] == 1:
        positions = positions.repeat(batch)
    if not ops.is_tracing():
        cos.tessera_rotation = (batch, (positions, table))  # all layers of a step get the same
    return positions, table


def _rotated_in_pytorch(x, cos, sin):
    """x [batch, tokens, heads, head_dim]; rotates halves of the first cos.shape[-1] elements."""
    size = cos.shape[-1]
    head, rest = x[..., :size], x[..., size:]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    a, b = head[..., : size // 2], head[..., size // 2 :]
    return torch.cat((head * cos + torch.cat((-b, a), -1) * sin, rest), -1)


def _fused(linears):
    """One torch.nn.Linear that computes what several do, side by side."""
    rows = sum(linear.out_features for linear in linears)
    first = linears[0]
    made = torch.nn.Linear(first.in_features, rows, bias=False, device="meta")
    with torch.no_grad():
        weight = torch.cat([linear.weight for linear in linears])
        made.weight = torch.nn.Parameter(weight, requires_grad=first.weight.requires_grad)
        if first.bias is not None:
            bias = torch.cat([linear.bias for linear in linears])
            made.bias = torch.nn.Parameter(bias, requires_grad=first.bias.requires_grad)
    return made


class PatchedAttention(torch.nn.Module):
    """Self-attention with rotary embeddings: projections as one product, keys straight to pages.

    It takes the place of a module with q_proj, k_proj, v_proj and o_proj, and norms of heads if
    there are any; `exchange.attention_of` finds out whether it computes the same.
    """

    def __init__(self, old, weights, group_size, norms=(None, None)):
        super().__init__()
        self.config, self.layer_idx = old.config, old.layer_idx
        self.head_dim, self.scaling = old.head_dim, old.scaling
        self.is_causal = getattr(old, "is_causal", True)
        self.attention_dropout = getattr(old, "attention_dropout", 0.0)
        self.sliding_window = getattr(old, "sliding_window", None)
        self.num_key_value_groups = getattr(old, "num_key_value_groups", 1)
        linears = [old.q_proj, old.k_proj, old.v_proj]
        self.sizes = [linear.out_features // self.head_dim for linear in linears]
        self.qkv = nn.Linear.from_float(_fused(linears), weights, group_size)
        self.out = nn.Linear.from_float(old.o_proj, weights, group_size)
        self.q_norm, self.k_norm = norms
        self.train(old.training)

    def forward(
        self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None,
        residual=None, **kwargs,
    ):
        """What the module before returns, with the residual added if there is one."""
        batch, tokens = hidden_states.shape[:2]
        cache = kwargs.pop("past_key_value", past_key_values)
        qkv = self.qkv(hidden_states).view(batch, tokens, sum(self.sizes), self.head_dim)
        q, k, v = qkv.split(self.sizes, 2)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        mixed = None
        layer = None if cache is None else cache.layers[self.layer_idx]
        is_plain = attention_mask is None and self.is_causal and not self.training
        if isinstance(layer, PagedLayer) and is_plain and not (
            torch.is_grad_enabled() and qkv.requires_grad
        ):
            mixed = self._in_pages(layer, q, k, v, *position_embeddings)
        if mixed is None:
            mixed = self._anywhere(cache, q, k, v, *position_embeddings, attention_mask, kwargs)
        return self.out(mixed.reshape(batch, tokens, -1), residual), None

    def _in_pages(self, layer, q, k, v, cos, sin):
        """Rotates, appends and attends in two kernels; None if the cache does not take it."""
        batch, tokens = q.shape[:2]
        if not layer.is_initialized:
            layer.allocate(batch, self.sizes[1], self.head_dim, k)
        pages = layer.pages
        is_first = pages.schedule.fixed is None and pages.length == 0
        rope = (q.reshape(-1, *q.shape[2:]), *_rotation(cos, sin, batch))
        try:
            places = pages.extend(k, v, rope)
        except Error as error:
            if pages.length + tokens > pages.max_len:
                raise
            tell_once("attention", error)
            return None
        # The views that were rotated are those of q and k, unless they had to be copied.
        turned = rope[0].view(q.shape)

        def run():
            if tokens <= MAX_DECODE_TOKENS:
                return pages.attend(turned, places, scale=self.scaling)
            keys, values = (k, v) if is_first else pages.whole()
            return ops.attention_prefill(turned, keys, values, causal=True, scale=self.scaling)

        def fall_back():
            heads = (x.transpose(1, 2) for x in (turned, *pages.whole()))
            return _in_pytorch(self, *heads, None, True, {"scaling": self.scaling})

        return served("attention", run, fall_back, q)

    def _anywhere(self, cache, q, k, v, cos, sin, mask, kwargs):
        """With any cache, any mask and any kind of tensor."""
        batch = q.shape[0]

        def run():
            rows = (x.reshape(-1, *x.shape[2:]) for x in (q, k))
            turned = ops.rope(*rows, *_rotation(cos, sin, batch))
            return [x.view(like.shape) for x, like in zip(turned, (q, k))]

        def fall_back():
            return [_rotated_in_pytorch(x, cos, sin) for x in (q, k)]

        q, k = served("rotary embeddings", run, fall_back, q, k)
        query, key, value = (x.transpose(1, 2) for x in (q, k, v))
        if cache is not None:
            place = kwargs.get("cache_position")
            more = () if place is None else ({"cache_position": place},)
            key, value = cache.update(key, value, self.layer_idx, *more)
        dropout = self.attention_dropout if self.training else 0.0
        kwargs.pop("is_causal", None)
        return attention_forward(
            self, query, key, value, mask, dropout=dropout, scaling=self.scaling, **kwargs)[0]
