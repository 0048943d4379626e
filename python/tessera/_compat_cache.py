# A paged KV cache with a table of blocks for each sequence, and blocks that sequences share.
# SPDX-License-Identifier: MIT
import torch

from ._library import Error
from ._pages import Pages


class PagedKVCache:
    """Keys and values of one layer for many sequences, in blocks taken from one pool.

    Sequences have names of the caller's choice. kv: a format without tails, such as "plain" or
    "int8" (see tessera.hf.TesseraCache).
    """

    def __init__(
        self, num_kv_heads, head_dim, num_blocks=1000, block_size=16, *, kv="plain",
        dtype=torch.float32, device=None,
    ):
        if kv == "int4":
            raise Error("PagedKVCache: kv is 'int4', which keeps tails; use 'int4_token'")
        self.pages = Pages(
            num_blocks, block_size, num_kv_heads, head_dim, kv=kv, dtype=dtype, device=device
        )
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._uses = [0] * num_blocks
        self._blocks = {}  # name -> blocks, in order
        self._lengths = {}

    @property
    def num_free_blocks(self):
        return len(self._free)

    def length(self, name):
        """How many tokens a sequence has; 0 if there is none of that name."""
        return self._lengths.get(name, 0)

    def block_table(self, name):
        """The blocks of a sequence, in order."""
        return list(self._blocks.get(name, ()))

    def waste(self):
        """The share of rows in blocks that are taken and hold no token."""
        taken = self.num_blocks - self.num_free_blocks
        held = {}
        for name, blocks in self._blocks.items():
            for i, block in enumerate(blocks):
                here = min(self.block_size, self._lengths[name] - i * self.block_size)
                held[block] = max(held.get(block, 0), here)
        return 1 - sum(held.values()) / (taken * self.block_size) if taken else 0.0

    def _take(self):
        if not self._free:
            raise Error(
                f"PagedKVCache: all {self.num_blocks} blocks are taken; free a sequence, or make "
                "the cache larger"
            )
        block = self._free.pop()
        self._uses[block] = 1
        return block

    def _release(self, block):
        self._uses[block] -= 1
        if self._uses[block] == 0:
            self._free.append(block)

    def _make_writable(self, name):
        """Before tokens are added: nothing to do where blocks belong to one sequence."""

    def append(self, name, k, v):
        """Adds tokens k and v [tokens, num_kv_heads, head_dim] to a sequence, or begins one."""
        blocks = self._blocks.setdefault(name, [])
        begin = self._lengths.setdefault(name, 0)
        end = begin + k.shape[0]
        num_new = -(-end // self.block_size) - len(blocks)
        if num_new > self.num_free_blocks:
            raise Error(
                f"PagedKVCache: {k.shape[0]} tokens need {num_new} more blocks, and "
                f"{self.num_free_blocks} of {self.num_blocks} are free; free a sequence"
            )
        self._make_writable(name)
        blocks.extend(self._take() for _ in range(num_new))
        slots = [blocks[i // self.block_size] * self.block_size + i % self.block_size
                 for i in range(begin, end)]
        self.pages.append(k, v, torch.tensor(slots, device=k.device))
        self._lengths[name] = end

    def _tables(self, names):
        for name in names:
            if name not in self._blocks:
                raise Error(f"PagedKVCache: there is no sequence {name!r}")
        device = self.pages.k.device
        lens = torch.tensor([self._lengths[n] for n in names], dtype=torch.int32, device=device)
        table = torch.zeros(len(names), max(len(self._blocks[n]) for n in names) or 1,
                            dtype=torch.int32)
        for row, name in zip(table, names):
            row[: len(self._blocks[name])] = torch.tensor(self._blocks[name], dtype=torch.int32)
        return lens, table.to(device)

    def get(self, name):
        """k and v [tokens, num_kv_heads, head_dim] of a sequence, contiguous."""
        lens, table = self._tables([name])
        k, v = self.pages.gather(lens, self.length(name), table)
        return k[0], v[0]

    def attention(self, q, names, **options):
        """Attention of each sequence's newest tokens, q [batch, q_len, num_heads, head_dim]."""
        return self.pages.decode(q, *self._tables(names), **options)

    def free(self, name):
        """Ends a sequence."""
        for block in self._blocks.pop(name, ()):
            self._release(block)
        self._lengths.pop(name, None)


class SharedKVCache(PagedKVCache):
    """A paged cache whose sequences may have blocks in common, until one of them writes."""

    def share_blocks(self, src, dst):
        """Lets a new sequence `dst` begin with all that `src` has; nothing is copied."""
        if src not in self._blocks:
            raise Error(f"share_blocks: there is no sequence {src!r}")
        if dst in self._blocks:
            raise Error(f"share_blocks: {dst!r} exists already; free it first")
        self._blocks[dst] = list(self._blocks[src])
        self._lengths[dst] = self._lengths[src]
        for block in self._blocks[dst]:
            self._uses[block] += 1

    def num_uses(self, block):
        """How many sequences have a block."""
        return self._uses[block]

    def copy_on_write(self, name):
        """Gives a sequence a last block of its own, where it shares one; whether it had to."""
        blocks = self._blocks[name]
        if not blocks or self._uses[blocks[-1]] == 1:
            return False
        old, new = blocks[-1], self._take()
        device = self.pages.k.device
        sources, targets = (torch.tensor([b], dtype=torch.int32, device=device) for b in (old, new))
        self.pages.copy(sources, targets)
        blocks[-1] = new
        self._release(old)
        return True

    def _make_writable(self, name):
        if self._lengths[name] % self.block_size:
            self.copy_on_write(name)
