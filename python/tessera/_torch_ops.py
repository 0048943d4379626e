# The operations as PyTorch modules call them: plainly, or as torch.ops while PyTorch traces.
# SPDX-License-Identifier: MIT
"""A plain call costs a few microseconds less than one through PyTorch's dispatcher, but only the
latter can be traced by torch.compile. What must be known of tracing is known here alone."""

from contextlib import contextmanager

import torch

import tessera

if hasattr(torch.library, "custom_op"):
    from . import torch as _registered  # noqa: F401  (registers torch.ops.tessera)

_compiler = getattr(torch, "compiler", None)
_is_compiling = getattr(_compiler, "is_compiling", None) or (lambda: False)
_is_recording = False


def is_tracing():
    """Whether calls are recorded by PyTorch in place of being run."""
    return _is_recording or _is_compiling()


@contextmanager
def recorded():
    """Calls inside the block go through torch.ops, where tracers of PyTorch see them."""
    global _is_recording
    before, _is_recording = _is_recording, True
    try:
        yield
    finally:
        _is_recording = before


def gemm(a, b, **options):
    if is_tracing():
        return torch.ops.tessera.gemm(a, b, **options)
    return tessera.gemm(a, b, **options)


def rms_norm(x, weight, eps, residual=None):
    """With a residual, which is updated in place: the norm of their sum."""
    if not is_tracing():
        return tessera.rms_norm(x, weight, eps, residual=residual)
    if residual is None:
        return torch.ops.tessera.rms_norm(x, weight, eps)
    return torch.ops.tessera.add_rms_norm(x, residual, weight, eps)


def rope(q, k, positions, table, style="half_split"):
    """In place; returns q and k."""
    if is_tracing():
        torch.ops.tessera.rope(q, k, positions, table, style)
    else:
        tessera.rope(q, k, positions, table, style=style)
    return q, k


def attention_prefill(q, k, v, **options):
    if is_tracing():
        return torch.ops.tessera.attention_prefill(q, k, v, **options)
    return tessera.attention_prefill(q, k, v, **options)


def attention_decode(q, k_pages, v_pages, seq_lens, **options):
    if is_tracing():
        return torch.ops.tessera.attention_decode(q, k_pages, v_pages, seq_lens, **options)
    return tessera.attention_decode(q, k_pages, v_pages, seq_lens, **options)


def kv_append(k, v, slots, k_pages, v_pages, *, rope=None, **options):
    """rope: (q, positions, table), or None; q and k are then rotated in place."""
    given = {} if rope is None else dict(zip(("rope_q", "rope_positions", "rope_table"), rope))
    if not is_tracing():
        tessera.kv_append(k, v, slots, k_pages, v_pages, **given, **options)
    elif rope is None:
        torch.ops.tessera.kv_append(k, v, slots, k_pages, v_pages, **options)
    else:
        torch.ops.tessera.kv_append_rope(k, v, slots, k_pages, v_pages, **given, **options)


def kv_gather(k_pages, v_pages, seq_lens, starts, k, v, **options):
    if is_tracing():
        torch.ops.tessera.kv_gather(k_pages, v_pages, seq_lens, starts, k, v, **options)
    else:
        tessera.kv_gather(k_pages, v_pages, seq_lens, starts, k, v, **options)
