# How an operation becomes one of torch.ops.tessera.
# SPDX-License-Identifier: MIT
import re

import torch

from ._dtypes import LONG_NAMES, canonical

if not hasattr(torch.library, "custom_op"):
    raise ImportError(
        f"tessera.torch needs PyTorch 2.4 or newer and found {torch.__version__}; "
        "tessera.rms_norm and the others take PyTorch tensors without it"
    )


def register(name, schema, run, fake):
    """The schema says which arguments are written: Tensor(a!). Tensors come before its `*`, if it
    has one, as PyTorch takes none by keyword alone, and so reach `run` and `fake` by position."""

    def without_grad(*args, **kwargs):
        with torch.no_grad():
            return run(*args, **kwargs)

    writes = re.findall(r"Tensor\(\w!\)\?? (\w+)", schema)
    op = torch.library.custom_op(
        "tessera::" + name, without_grad, mutates_args=writes, schema=schema
    )
    op.register_fake(fake)
    return op


def storage(dtype):
    """The dtype that holds a format: FP8 where PyTorch has it, packed int4 as bytes."""
    name = LONG_NAMES[canonical(dtype)]
    return torch.uint8 if name == "int4" else getattr(torch, name)
