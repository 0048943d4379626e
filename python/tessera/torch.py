# The operations as torch.ops.tessera, with shapes known to torch.compile; imported on request.
# SPDX-License-Identifier: MIT
"""`import tessera.torch`, then torch.ops.tessera.rms_norm(x, weight, 1e-5) and its siblings.

Each operation has a schema, an implementation for every device Tessera serves, and a fake one that
gives shapes and dtypes only, so that torch.compile and torch.export can trace it. They record no
gradients. Formats are strings: "int8", "int4", "uint8", "float8_e4m3fn", "float8_e5m2".

Nothing of an operation is written down here a second time. Its schema follows from the signature
of its Python function and from what `_operations` says of the arguments. Its fake implementation
is that same function, which then makes its results and runs nothing.
"""

import copy
import inspect

import torch

import tessera as _tessera

from ._call import shapes_only
from ._operations import OPERATIONS

if not hasattr(torch.library, "custom_op"):
    raise ImportError(
        f"tessera.torch needs PyTorch 2.4 or newer and found {torch.__version__}; "
        "tessera.rms_norm and the others take PyTorch tensors without it"
    )

# Results are returned and never passed in.
_RESULTS = {"out", "lse", "return_lse"}


class _Parameter:
    """An argument of an operation in a schema of PyTorch."""

    def __init__(self, op, parameter, names):
        self.name, self.default = parameter.name, parameter.default
        self.is_required = self.default is parameter.empty
        kinds = {scalar.name: scalar.schema for scalar in op.scalars}
        annotation = parameter.annotation
        if annotation is not parameter.empty:
            self.kind = annotation.__name__
        elif self.name in kinds and not isinstance(self.default, (bool, str)):
            self.kind = kinds[self.name]
        elif self.is_required or self.name in op.tensors:
            self.kind = "Tensor"
        else:
            self.kind = "str" if self.default is None else type(self.default).__name__
        is_written = self.name in op.written or op.written_with.get(self.name) in names
        self.is_written = self.kind == "Tensor" and is_written

    def text(self, letter):
        text = self.kind + (f"({letter}!)" if self.is_written else "")
        if self.is_required:
            return f"{text} {self.name}"
        if self.default is None:
            text += "?"
        default = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        return f"{text} {self.name}={default}"


def _ordered(parameters, op):
    """Required tensors, then optional ones in the order of C, then the rest: and how many of each.

    PyTorch has no tensors that are keywords only.
    """

    def place(parameter):
        if parameter.kind != "Tensor":
            return 2, 0
        return (0, 0) if parameter.is_required else (1, op.tensors.index(parameter.name))

    return sorted(parameters, key=place), sum(p.kind == "Tensor" for p in parameters)


def _schema(parameters, num_positional, results):
    letters = (chr(ord("a") + i) for i in range(26))
    texts = [p.text(next(letters) if p.is_written else "") for p in parameters]
    if num_positional < len(texts):
        texts.insert(num_positional, "*")
    returned = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    return f"({', '.join(texts)}) -> {returned}"


def _register(function, of=None, results=1, tensors_first=False):
    """Makes a Python function torch.ops.tessera.<its name>.

    of: the operation whose arguments it has, if that has another name; with others after it, whose
    tensors are only read, where it has arguments of several. results: how many tensors it
    returns; 0 for an operation that only writes to its arguments. tensors_first: all tensors come
    before the other arguments, which are keywords.

    torch.library.custom_op is not used: in PyTorch 2.11, calls of one fail if an optional argument
    that may be written is left out.
    """
    name = function.__name__
    first, *others = (of or name).split()
    op = copy.copy(OPERATIONS[first])
    op.tensors = sum((OPERATIONS[other].tensors for other in others), op.tensors)
    signature = inspect.signature(function).parameters.values()
    given = [parameter for parameter in signature if parameter.name not in _RESULTS]
    parameters = [_Parameter(op, parameter, {p.name for p in given}) for parameter in given]
    num_positional = len(parameters)
    if tensors_first:
        parameters, num_positional = _ordered(parameters, op)
    written = [i for i, parameter in enumerate(parameters) if parameter.is_written]
    names = [parameter.name for parameter in parameters]

    def call(args, kwargs):
        result = function(**dict(zip(names, args)), **kwargs)
        return result if results else None

    def run(*args, **kwargs):
        for i in written:
            if i < len(args) and isinstance(args[i], torch.Tensor):
                torch.autograd.graph.increment_version(args[i])
        with torch.no_grad():
            return call(args, kwargs)

    def fake(*args, **kwargs):
        # No shape depends on an integer that may be symbolic, and reading it would fix its value.
        for parameter in parameters:
            if parameter.kind == "SymInt":
                kwargs.pop(parameter.name, None)
        with shapes_only():
            return call(args, kwargs)

    qualified = "tessera::" + name
    torch.library.define(qualified, _schema(parameters, num_positional, results))
    torch.library.impl(qualified, "CompositeExplicitAutograd", run)
    torch.library.register_fake(qualified, fake)
    return getattr(torch.ops.tessera, name)


def _variant(function, name, without="", required="", **fixed):
    """A function under another name: arguments left out, required, or given their values."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(default=p.empty) if p.name in required.split() else p
        for p in signature.parameters.values()
        if p.name not in without.split()
    ]
    order = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]

    def variant(**arguments):
        return function(**arguments, **fixed)

    variant.__name__ = name
    variant.__signature__ = signature.replace(parameters=order)
    return variant


# Norms, by whether they add a residual first and whether they quantise the result.
def rms_norm(x, weight, eps=1e-5):
    return _tessera.rms_norm(x, weight, eps)


def add_rms_norm(x, residual, weight, eps=1e-5):
    return _tessera.rms_norm(x, weight, eps, residual=residual)


def rms_norm_quantized(x, weight, dtype: str, eps=1e-5):
    return _tessera.rms_norm(x, weight, eps, dtype=dtype)


def add_rms_norm_quantized(x, residual, weight, dtype: str, eps=1e-5):
    return _tessera.rms_norm(x, weight, eps, residual=residual, dtype=dtype)


def layer_norm(x, weight, bias=None, eps=1e-5):
    return _tessera.layer_norm(x, weight, bias, eps)


rms_norm = _register(rms_norm)
add_rms_norm = _register(add_rms_norm, of="rms_norm")
rms_norm_quantized = _register(rms_norm_quantized, of="rms_norm", results=2)
add_rms_norm_quantized = _register(add_rms_norm_quantized, of="rms_norm", results=2)
layer_norm = _register(layer_norm)
rope = _register(_tessera.rope, results=0)
relu = _register(_tessera.relu, of="activation")
silu = _register(_tessera.silu, of="activation")
gelu = _register(_tessera.gelu, of="activation")
silu_mul = _register(_tessera.silu_mul, of="activation")
gelu_mul = _register(_tessera.gelu_mul, of="activation")
softmax = _register(_tessera.softmax)
scale = _register(_tessera.scale)
embedding = _register(_tessera.embedding, of="embedding_computed")
transpose = _register(_tessera.transpose, of="copy")


# The group size is an argument of its own: PyTorch has none that may be a string or a number.
def quantize(x, dtype: str, per="token", group_size=0):
    return _tessera.quantize(x, dtype, per=group_size or per)


def quantize_asymmetric(x, dtype: str, per="token", group_size=0):
    return _tessera.quantize(x, dtype, per=group_size or per, asymmetric=True)


quantize = _register(quantize, results=2)
quantize_asymmetric = _register(quantize_asymmetric, of="quantize", results=3)
dequantize = _register(_tessera.dequantize)
reduce = _register(_tessera.reduce)
argmax = _register(_tessera.argmax)
gemm = _register(_tessera.gemm, of="gemm_weight gemm_codes gemm_table")
sum_weight_rows = _register(_tessera.sum_weight_rows)
pack_gate_up = _register(_tessera.pack_gate_up)
prune_2_4 = _register(_tessera.prune_2_4, results=2)
expand_2_4 = _register(_tessera.expand_2_4)
gemm_2_4 = _register(_tessera.gemm_2_4)


def _register_attention(function):
    """(name, name_lse): the operation, and the one that also returns the log-sum-exp."""
    name = function.__name__
    with_lse = _variant(function, name + "_lse", return_lse=True)
    alone = _register(function, tensors_first=True)
    return alone, _register(with_lse, of=name, results=2, tensors_first=True)


def _prefill():
    """attention_prefill with its window as two arguments, each of which may be None."""
    rest = inspect.signature(_tessera.attention_prefill).parameters.values()
    bounds = [
        inspect.Parameter(side, inspect.Parameter.KEYWORD_ONLY, default=None)
        for side in ("left", "right")
    ]

    def attention_prefill(left=None, right=None, **arguments):
        return _tessera.attention_prefill(window=(left, right), **arguments)

    parameters = [parameter for parameter in rest if parameter.name != "window"] + bounds
    attention_prefill.__signature__ = inspect.Signature(parameters)
    return attention_prefill


attention_prefill, attention_prefill_lse = _register_attention(_prefill())
attention_decode, attention_decode_lse = _register_attention(_tessera.attention_decode)
attention_merge, attention_merge_lse = _register_attention(_tessera.attention_merge)
attention_cascade, attention_cascade_lse = _register_attention(_tessera.attention_cascade)

# With a rotation kv_append also writes k, so that is an operation of its own. The scales of FP8 are
# only read, but a schema cannot tell them from those that are written.
_ROPE = "rope_q rope_positions rope_table"
_append = _variant(_tessera.kv_append, "kv_append", without=_ROPE + " rope_style")
_append_rope = _variant(_tessera.kv_append, "kv_append_rope", required=_ROPE)
kv_append = _register(_append, results=0, tensors_first=True)
kv_append_rope = _register(_append_rope, of="kv_append", results=0, tensors_first=True)
kv_gather = _register(_tessera.kv_gather, results=0, tensors_first=True)
kv_copy_pages = _register(_tessera.kv_copy_pages, results=0, tensors_first=True)
sample = _register(_tessera.sample, tensors_first=True)
token_logprobs = _register(_tessera.token_logprobs)
top_logprobs = _register(_tessera.top_logprobs, of="token_logprobs", results=3)
