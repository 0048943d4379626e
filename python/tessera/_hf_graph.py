# Decoding steps of a patched Transformers model as CUDA graphs, and caches for `generate`.
# SPDX-License-Identifier: MIT
"""Between two kernels of a small step, PyTorch on the host takes longer than the GPU. A step that
adds one token to each sequence of a TesseraCache is therefore recorded once and replayed: the
token, its position and the places in the cache are read from the device."""

import functools
import inspect
import weakref

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from . import _torch_ops as ops
from ._hf_cache import Storage, TesseraCache
from ._hf_record import record_cuda
from ._torch_weights import tell_once

LEAST_CLASS = 256
# Arguments of `forward` that a recorded step serves, beside those that are None or False.
_SERVED = {"input_ids", "past_key_values", "attention_mask", "position_ids", "cache_position",
           "use_cache", "return_dict", "logits_to_keep"}


def length_class(length):
    """The longest sequence that the graph for `length` serves: four classes for each doubling."""
    if length <= LEAST_CLASS:
        return LEAST_CLASS
    step = 1 << ((length - 1).bit_length() - 3)
    return -(-length // step) * step


class _Recorded:
    """A step of the model with its inputs and outputs at fixed addresses."""

    def __init__(self, forward, storage, longest, record, pool):
        pages = storage.layers[0].pages
        device = pages.rows.device
        self.ids = torch.zeros(pages.batch, 1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.position_ids = torch.zeros_like(self.ids)
        self.set(self.ids, None, pages.length)

        def step(ids, position, position_ids):
            lens = (position + 1).to(torch.int32).expand(pages.batch).contiguous()
            storage.schedule.fixed = pages.places_at(position, lens, longest)
            try:
                return forward(
                    input_ids=ids, position_ids=position_ids, attention_mask=None, use_cache=True,
                    past_key_values=TesseraCache(None, 0, storage=storage), return_dict=True,
                ).logits
            finally:
                storage.schedule.fixed = None

        inputs = (self.ids, self.position, self.position_ids)
        self.replay, self.logits = record(step, inputs, pool)

    def set(self, ids, position_ids, length):
        if ids is not self.ids:
            self.ids.copy_(ids)
        self.position.fill_(length)
        if position_ids is None:
            self.position_ids.fill_(length)
        else:
            self.position_ids.copy_(position_ids.expand_as(self.ids))


class DecodeSteps:
    """The `forward` of a patched model: recorded steps where they serve, else the model's own."""

    def __init__(self, forward, record=record_cuda):
        self.forward, self.record = forward, record
        self.num_replays = 0
        self._pool = None
        self._why_not = None
        self._names = list(inspect.signature(forward).parameters)

    def __call__(self, *args, **kwargs):
        if ops.is_tracing():
            return self.forward(*args, **kwargs)
        given = {**dict(zip(self._names, args)), **kwargs}
        if not self._is_served(given):
            return self.forward(*args, **kwargs)
        cache = given["past_key_values"]
        try:
            recorded = self._find(cache.storage)
        except Exception as error:  # whatever the model does that cannot be recorded
            self._why_not = error
            tell_once("a decoding step", f"it cannot be recorded as a graph: {error}")
            return self.forward(*args, **kwargs)
        length = cache.layers[0].pages.length
        recorded.set(given["input_ids"], given.get("position_ids"), length)
        recorded.replay()
        self.num_replays += 1
        for layer in cache.layers:
            layer.pages.length += 1
        return CausalLMOutputWithPast(logits=recorded.logits.clone(), past_key_values=cache)

    def _is_served(self, given):
        cache, ids = given.get("past_key_values"), given.get("input_ids")
        if self._why_not is not None or not isinstance(cache, TesseraCache) or ids is None:
            return False
        if ids.is_cpu and self.record is record_cuda or torch.is_grad_enabled():
            return False
        more = (given[name] for name in given if name not in _SERVED)
        if ids.shape[1] != 1 or not all(one is None or one is False for one in more):
            return False
        if given.get("return_dict") is False or given.get("use_cache") is False:
            return False
        if not isinstance(given.get("logits_to_keep", 0), int):
            return False
        layers = cache.layers
        if any(layer.pages is None or layer.pages.batch != ids.shape[0] for layer in layers):
            return False
        length = layers[0].pages.length
        is_even = all(layer.pages.length == length for layer in layers)
        if length == 0 or length >= layers[0].pages.max_len or not is_even:
            return False
        mask = given.get("attention_mask")
        # Padding would need a mask that grows with the sequence.
        return mask is None or (mask.dim() == 2 and bool(mask.all()))

    def _find(self, storage):
        longest = length_class(storage.layers[0].pages.length + 1)
        found = storage.recorded.get(longest)
        if found is None:
            if self._pool is None and self.record is record_cuda:
                self._pool = torch.cuda.graph_pool_handle()
            with torch.no_grad():
                found = _Recorded(self.forward, storage, longest, self.record, self._pool)
            storage.recorded[longest] = found
        return found


class Caches:
    """TesseraCaches for `generate`. The memory of one that nobody holds any more is used again."""

    def __init__(self, config, kv):
        self.config, self.kv = config, kv
        self.idle = None  # a Storage

    def make(self, batch, max_len):
        max_len = length_class(max_len)
        storage, self.idle = self.idle, None
        if storage is None or storage.batch not in (None, batch) or storage.max_len < max_len:
            storage = Storage(self.config, max_len, self.kv, 32)
        for layer in storage.layers:
            layer.reset()
        cache = TesseraCache(self.config, max_len, storage=storage)
        weakref.finalize(cache, self._take_back, storage).atexit = False
        return cache

    def _take_back(self, storage):
        self.idle = storage


def cache_maker(model, caches):
    """Transformers' _prepare_cache_for_generation, which gives `generate` a TesseraCache.

    Caches that the caller passes or names, and modes that need more of a cache, stay as they are.
    """
    before = model._prepare_cache_for_generation
    signature = inspect.signature(before)

    @functools.wraps(before)
    def prepare(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        config, model_kwargs = given["generation_config"], given["model_kwargs"]
        mode = getattr(given.get("generation_mode"), "value", None)
        is_usual = mode in ("greedy_search", "sample", "beam_search", "beam_sample")
        is_free = model_kwargs.get("past_key_values") is None and config.use_cache is not False
        if not is_usual or not is_free or config.cache_implementation is not None:
            return before(*args, **kwargs)
        count = max(config.num_beams or 1, config.num_return_sequences or 1)
        batch = given["batch_size"] * count
        model_kwargs["past_key_values"] = caches.make(batch, given["max_cache_length"] + 1)
        return None

    return prepare
