# A cache for Transformers over pages that are allocated once.
# SPDX-License-Identifier: MIT
"""TesseraCache, and its layers."""

import inspect
from typing import Any, Optional

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ._library import Error
from ._pages import FORMATS, Schedule, SequencePages


class PagedLayer(CacheLayerMixin):
    """The keys and values of one layer in pages, allocated when the first tokens come."""

    is_sliding = False
    is_croppable = False

    def __init__(self, max_len, kv, page_size, is_read_in_place, schedule):
        super().__init__()
        self.max_len, self.kv, self.page_size = max_len, kv, page_size
        self.is_read_in_place = is_read_in_place
        self.schedule = schedule
        self.pages = None

    def lazy_initialization(self, key_states, value_states=None):
        batch, heads, _, head_dim = key_states.shape
        self.allocate(batch, heads, head_dim, key_states)

    def allocate(self, batch, num_kv_heads, head_dim, like):
        self.dtype, self.device = like.dtype, like.device
        self.pages = SequencePages(
            batch, self.max_len, num_kv_heads, head_dim, kv=self.kv, page_size=self.page_size,
            dtype=self.dtype, device=self.device, schedule=self.schedule,
        )
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """For attention of any kind: keys and values [batch, heads, length, head_dim]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        with torch.no_grad():
            new = (x.transpose(1, 2) for x in (key_states, value_states))
            places = self.pages.extend(*new)
            if self.kv != "plain" and self.is_read_in_place:
                # Attention reads the pages themselves: shapes are all that is asked of these.
                shape = (*key_states.shape[:2], self.pages.length, key_states.shape[3])
                keys = values = key_states.new_zeros(1).expand(shape)
            else:
                keys, values = (x.transpose(1, 2) for x in self.pages.whole())
        keys.tessera_pages = (self.pages, places)
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


class Storage:
    """What outlives a TesseraCache that `generate` has made: layers, and steps recorded on them."""

    def __init__(self, config, max_len, kv, page_size):
        if kv not in FORMATS:
            raise Error(f"kv is {kv!r}; want one of {', '.join(FORMATS)}")
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        in_place = getattr(text, "_attn_implementation", None) == "tessera"
        self.kv, self.max_len = kv, max_len
        self.schedule = Schedule()
        self.layers = [PagedLayer(max_len, kv, page_size, in_place, self.schedule)
                       for _ in range(text.num_hidden_layers)]
        self.recorded = {}  # by the longest sequence they serve

    @property
    def batch(self):
        pages = self.layers[0].pages
        return None if pages is None else pages.batch


class TesseraCache(Cache):
    """Keys and values in pages that are allocated once, in any of Tessera's formats.

    config: of the model. max_len: most tokens of a sequence. kv: "plain", "e4m3", "e5m2", "int8",
    "uint8", "int4" (keys by column, values by row) or "int4_token". With
    attn_implementation="tessera" new tokens are attended to in the pages; other implementations
    get a copy in the model's type. storage: for `generate`, which uses memory again.
    """

    def __init__(
        self, config: Any, max_len: int, *, kv: str = "plain", page_size: int = 32,
        storage: Optional[Storage] = None,
    ):
        self.storage = storage or Storage(config, max_len, kv, page_size)
        layers = self.storage.layers
        more = {"layers": layers} if "layers" in inspect.signature(Cache).parameters else {}
        super().__init__(**more)
        self.kv = self.storage.kv

    @property
    def num_bytes(self) -> int:
        """Of all pages that exist, with scales and tails."""
        return sum(layer.pages.num_bytes for layer in self.layers if layer.pages is not None)
