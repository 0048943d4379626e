# Hugging Face Transformers on Tessera: attention, layers in place, and a cache in pages.
# SPDX-License-Identifier: MIT
"""`import tessera.hf`, then either of these, or both:

model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="tessera")
tessera.hf.patch(model, weights="int8")   # and tessera.hf.unpatch(model)
model.generate(**inputs, past_key_values=tessera.hf.TesseraCache(model.config, 2048, kv="int8"))
"""

import functools
from typing import Any, Dict, Optional, Sequence

import torch

from . import nn
from ._hf_attention import attention_forward
from ._hf_cache import TesseraCache
from ._hf_exchange import AttentionExchange, LayerExchange, mlp_of, norm_of
from ._hf_graph import Caches, DecodeSteps, cache_maker
from ._library import Error
from ._pages import FORMATS
from ._torch_weights import Codes, check_weights

__all__ = ["TesseraCache", "attention_forward", "patch", "unpatch"]

_KEPT = ("device", "host", "nothing")


class _Patch:
    """What patch has replaced, and how to go back."""

    def __init__(self, model, keep):
        self.model, self.keep = model, keep
        self.implementation = model.config._attn_implementation
        self.replaced = []  # (parent, name, the module before)
        self.attributes = []  # (module, name, value before; None: its class has it)
        self.devices = {}  # of weights that were moved to the host
        self.counts = {"attention": 0, "layer": 0, "linear": 0, "mlp": 0, "norm": 0}
        self.steps = None

    def replace(self, parent, name, module, new, kind):
        setattr(parent, name, new.train(module.training))
        self.counts[kind] += 1
        if self.keep != "nothing":
            self.replaced.append((parent, name, module))
        if self.keep == "host":
            for linear in module.modules():
                if type(linear) is torch.nn.Linear and linear.weight.is_cuda:
                    self.devices[linear] = linear.weight.device
                    linear.weight.data = linear.weight.data.cpu()

    def set(self, module, name, value):
        self.attributes.append((module, name, module.__dict__.get(name)))
        setattr(module, name, value)

    def undo(self):
        for linear, device in self.devices.items():
            linear.weight.data = linear.weight.data.to(device)
        for parent, name, module in self.replaced:
            setattr(parent, name, module)
        for module, name, value in self.attributes:
            if value is None:
                delattr(module, name)
            else:
                setattr(module, name, value)


def patch(
    model: Any, weights: str = "plain", *, group_size: int = 128, attention: bool = True,
    exclude: Sequence[str] = ("lm_head",), kv: str = "plain", graphs: bool = True,
    keep: Optional[str] = None,
) -> Dict[str, int]:
    """Replaces layers of a Transformers model by Tessera's, in place; how many of each kind.

    Linear layers get weights in the format `weights` (tessera.nn.WEIGHTS), except those whose name
    contains a string of `exclude`; gated MLPs become one product, RMS norms one kernel, and
    attention one product, one kernel that rotates and stores keys, and Tessera's attention, unless
    `attention` is False. In layers made of these, the last products also add the residual.

    `generate` then keeps keys and values in a TesseraCache in the format `kv`, unless it is given a
    cache, and on a GPU with `graphs` replays steps of one token as CUDA graphs. That is for batches
    without padding; others run layer by layer.

    keep: where the replaced weights stay for `unpatch`: "device", "host", or "nothing" for a model
    that is not to be unpatched. If None: the device for plain weights, the host for quantised ones.
    """
    check_weights(weights)
    if hasattr(model, "_tessera_patch"):
        raise Error("the model is patched already; unpatch it first")
    keep = keep or ("device" if weights == "plain" else "host")
    if keep not in _KEPT:
        raise Error(f"keep is {keep!r}; want one of {', '.join(_KEPT)}")
    if kv not in FORMATS:
        raise Error(f"kv is {kv!r}; want one of {', '.join(FORMATS)}")
    made = _Patch(model, keep)
    attentions = AttentionExchange(weights, group_size) if attention else None
    layers = LayerExchange()

    def find(module, where):
        """(kind, replacement), or None."""
        if attentions is not None and "attention" in type(module).__name__.lower():
            names = [f"{where}.{name}" for name, _ in module.named_children()]
            if not any(word in name for word in exclude for name in names):
                new = attentions.module_of(module)
                if new is not None:
                    return "attention", new
        new = mlp_of(module, where, model.config, weights, group_size)
        if new is not None:
            return "mlp", new
        new = norm_of(module)
        if new is not None:
            return "norm", new
        if type(module) is torch.nn.Linear:
            return "linear", nn.Linear.from_float(module, weights, group_size)
        return None

    def visit(parent, path):
        for name, module in list(parent.named_children()):
            where = f"{path}.{name}" if path else name
            if any(word in where for word in exclude):
                continue
            found = find(module, where)
            if found is not None:
                made.replace(parent, name, module, found[1], found[0])
                continue
            visit(module, where)
            forward = layers.forward_of(module) if attention else None
            if forward is not None:
                made.set(module, "forward", functools.wraps(module.forward)(forward))
                made.counts["layer"] += 1

    visit(model, "")
    _settle_packings(model)
    if attention:
        model.set_attn_implementation("tessera")
        if hasattr(model, "_prepare_cache_for_generation"):
            maker = cache_maker(model, Caches(model.config, kv))
            made.set(model, "_prepare_cache_for_generation", maker)
        if graphs:
            forward = model.forward
            made.steps = DecodeSteps(forward)
            run = functools.partial(DecodeSteps.__call__, made.steps)
            made.set(model, "forward", functools.wraps(forward)(run))
    model._tessera_patch = made
    return made.counts


def _settle_packings(model):
    """Lays quantised weights out for their kernels now, before anything is traced or recorded."""
    for module in model.modules():
        if isinstance(module, Codes):
            dtype = model.dtype if model.dtype.is_floating_point else torch.float32
            like = torch.empty(1, module.k, dtype=dtype, device=module.codes.device)
            module.settle_packing(like)


def unpatch(model: Any) -> None:
    """Puts back what patch has replaced."""
    made = getattr(model, "_tessera_patch", None)
    if made is None:
        raise Error("the model is not patched")
    if made.keep == "nothing":
        raise Error("the model was patched with keep='nothing', so what was replaced is gone")
    made.undo()
    if made.implementation is not None:
        model.set_attn_implementation(made.implementation)
    del model._tessera_patch
