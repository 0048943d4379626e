# How an operation becomes one of torch.ops.tessera.
# SPDX-License-Identifier: MIT
import torch

from ._dtypes import LONG_NAMES, canonical

if not hasattr(torch.library, "custom_op"):
    raise ImportError(
        f"tessera.torch needs PyTorch 2.4 or newer and found {torch.__version__}; "
        "tessera.rms_norm and the others take PyTorch tensors without it"
    )


def register(name, schema, run, fake):
    """The schema says which arguments are written: Tensor(a!). Tensors come before its `*`, if it
    has one, as PyTorch takes none by keyword alone, and so reach `run` and `fake` by position.

    Not by torch.library.custom_op: PyTorch 2.11's calls of one fail where an optional argument that
    may be written is left out.
    """
    arguments = schema[schema.index("(") + 1 : schema.rindex(")")].split(" *,")[0]
    written = [i for i, a in enumerate(arguments.split(", ")) if "!" in a]
    qualified = "tessera::" + name

    def without_grad(*args, **kwargs):
        for i in written:
            if i < len(args) and isinstance(args[i], torch.Tensor):
                torch.autograd.graph.increment_version(args[i])
        with torch.no_grad():
            return run(*args, **kwargs)

    torch.library.define(qualified, schema)
    torch.library.impl(qualified, "CompositeExplicitAutograd", without_grad)
    torch.library.register_fake(qualified, fake)
    return getattr(torch.ops.tessera, name)


def storage(dtype):
    """The dtype that holds a format: FP8 where PyTorch has it, packed int4 as bytes."""
    name = LONG_NAMES[canonical(dtype)]
    return torch.uint8 if name == "int4" else getattr(torch, name)
