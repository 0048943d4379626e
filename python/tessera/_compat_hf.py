# Caches for Transformers under the names of tessera.compat.
# SPDX-License-Identifier: MIT
from .hf import TesseraCache


class PreallocCache(TesseraCache):
    """Keys and values as they are, in memory that is allocated once."""

    def __init__(self, config, max_len):
        super().__init__(config, max_len)


class Int4KIVICache(TesseraCache):
    """4 bits: keys by column in groups of 32 tokens, values by token.

    Keys of a group that is not complete stay in the model's type.
    """

    def __init__(self, config, max_len):
        super().__init__(config, max_len, kv="int4")
