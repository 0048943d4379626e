# Which layer of Tessera computes what a layer of a Transformers model computes.
# SPDX-License-Identifier: MIT
"""Layers are told apart by what they have and by what they compute, not by the model's name."""

import copy
import functools

import torch

from . import nn
from ._hf_attention import PatchedAttention
from ._torch_weights import tell_once

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_ACTIVATION_NAMES = {"silu": "silu", "swish": "silu", "gelu": "gelu",
                     "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


def _eps_of(module):
    for name in ("variance_epsilon", "eps"):
        if isinstance(getattr(module, name, None), float):
            return getattr(module, name)
    return None


def _random_like(tensor, *shape):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator).to(tensor)


def _are_close(got, want):
    bound = 1e-4 if want.dtype == torch.float32 else 3e-2
    return bool((got.float() - want.float()).abs().max() <= bound * want.float().abs().max())


def norm_of(module):
    """An RMSNorm in place of a module that computes one, or None: found out by computing both."""
    names = [name for name, _ in module.named_parameters()]
    eps = _eps_of(module)
    if "rmsnorm" not in type(module).__name__.lower() or names != ["weight"] or eps is None:
        return None
    norm = nn.RMSNorm(None, eps, weight=module.weight)
    probe = _random_like(module.weight, 3, module.weight.shape[0])
    with torch.no_grad():
        return norm if _are_close(norm(probe), module(probe)) else None


def mlp_of(module, name, config, weights, group_size):
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


_PARTS = {"self_attn": PatchedAttention, "mlp": nn.GatedMlp, "input_layernorm": nn.RMSNorm,
          "post_attention_layernorm": nn.RMSNorm}


def _layer_forward(layer, hidden_states, *, past_key_values=None, **kwargs):
    """A decoder layer whose last products add the residual."""
    x, _ = layer.self_attn(
        layer.input_layernorm(hidden_states), past_key_values=past_key_values,
        residual=hidden_states, **kwargs,
    )
    return layer.mlp(layer.post_attention_layernorm(x), x)


class LayerExchange:
    """Finds decoder layers made of parts that were replaced. A class of them is compared once."""

    def __init__(self):
        self._is_same = {}

    def forward_of(self, layer):
        """A `forward` in place of a layer's own, or None."""
        children = dict(layer.named_children())
        if children.keys() != _PARTS.keys() or not all(
            type(children[name]) is kind for name, kind in _PARTS.items()
        ):
            return None
        forward = functools.partial(_layer_forward, layer)
        if type(layer) not in self._is_same:
            self._is_same[type(layer)] = self._compare(layer, forward)
        return forward if self._is_same[type(layer)] else None

    @staticmethod
    def _compare(layer, forward):
        attention = layer.self_attn
        weight = layer.input_layernorm.weight
        given = {"position_embeddings": _turns(weight, attention.head_dim), "attention_mask": None}
        x = _random_like(weight, 1, 3, weight.shape[0])
        was_training = layer.training
        try:
            with torch.no_grad():
                want = layer.eval()(x, **given)
                return isinstance(want, torch.Tensor) and _are_close(forward(x, **given), want)
        except Exception as error:  # its arguments are other ones, whatever they are
            tell_once(type(layer).__name__, f"it could not be compared: {error}")
            return False
        finally:
            layer.train(was_training)


def _turns(like, head_dim):
    """Random cosines and sines of three tokens."""
    angles = _random_like(like.float(), 1, 3, head_dim // 2).repeat(1, 1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


class AttentionExchange:
    """Makes PatchedAttention modules. What a class of modules computes is compared once."""

    def __init__(self, weights, group_size):
        self.weights, self.group_size = weights, group_size
        self._is_same = {}  # by class

    def module_of(self, module):
        """A PatchedAttention in place of a module, or None."""
        parts = [getattr(module, part, None) for part in _PROJECTIONS]
        has_bias = [getattr(part, "bias", None) is not None for part in parts[:3]]
        children = {name for name, _ in module.named_children()}
        if (
            not all(type(part) is torch.nn.Linear for part in parts)
            or len(set(has_bias)) != 1
            or not children <= {*_PROJECTIONS, "q_norm", "k_norm", "rotary_emb"}
            or not all(hasattr(module, name) for name in ("layer_idx", "scaling", "head_dim"))
            or getattr(module, "softcap", None)
        ):
            return None
        norms = [getattr(module, name, None) for name in ("q_norm", "k_norm")]
        made = [None if norm is None else norm_of(norm) for norm in norms]
        if [norm is None for norm in norms] != [norm is None for norm in made]:
            return None
        kind = type(module)
        if kind not in self._is_same:
            self._is_same[kind] = self._compare(module, made)
        if not self._is_same[kind]:
            return None
        return PatchedAttention(module, self.weights, self.group_size, made)

    @staticmethod
    def _compare(module, norms):
        """Whether both give the same for three random tokens, with PyTorch's causal attention."""
        weight = module.q_proj.weight
        x = _random_like(weight, 1, 3, weight.shape[1])
        turns = _turns(weight, module.head_dim)
        config = module.config
        probe = copy.copy(config)
        probe._attn_implementation = "sdpa"
        was_training = module.training
        module.config = probe
        try:
            with torch.no_grad():
                want = module.eval()(
                    hidden_states=x, position_embeddings=turns, attention_mask=None)[0]
                got = PatchedAttention(module, "plain", 0, norms)(x, turns)[0]
                return _are_close(got, want)
        except Exception as error:  # its arguments are other ones, whatever they are
            tell_once(type(module).__name__, f"it could not be compared: {error}")
            return False
        finally:
            module.config = config
            module.train(was_training)
