# Where the time of a small call goes, for the cost tests of every framework.
# SPDX-License-Identifier: MIT
import ctypes
import statistics
import time
from dataclasses import dataclass

import tessera
from tessera import _frameworks
from tessera._library import lib
from tessera._operations import Context


def microseconds(call, before=lambda: None, batches=300, calls=100):
    """The median over batches of the mean time of a call; `before` runs ahead of each batch."""
    times = []
    for _ in range(batches):
        before()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


@dataclass
class Cost:
    whole: float  # the call as a user makes it
    empty: float  # the same with no rows: everything but the work, or its launch
    bare: float  # the C function by ctypes, given DLTensors made before

    def __str__(self):
        return (
            f"{self.whole:.2f} us in all, {self.empty:.2f} us with no rows (so "
            f"{self.whole - self.empty:.2f} us of work or launch); the C function alone, "
            f"by ctypes: {self.bare:.2f} us"
        )


def _breakdown(call, bare, tensors, scalars, stream, before):
    """The Cost of call(x, weight, out); `bare` is its C function, called with `scalars`."""
    keep = []
    framework = _frameworks.framework_of(tensors[0])
    pointers = [framework.borrow(tensor, keep) for tensor in tensors]
    context = Context(ctypes.sizeof(Context), stream)
    address = ctypes.addressof(context)
    x, weight, out = tensors
    no_x, no_out = x[:0], out[:0]
    return Cost(
        microseconds(lambda: call(x, weight, out), before),
        microseconds(lambda: call(no_x, weight, no_out), before),
        microseconds(lambda: bare(*pointers, *scalars, address), before),
    )


def rms_norm_cost(x, weight, out, stream=None, before=lambda: None):
    """The cost of rms_norm(x, weight, out=out); `stream` is the address of the tensors' stream."""
    return _breakdown(
        lambda x, weight, out: tessera.rms_norm(x, weight, out=out),
        lib.rms_norm,
        (x, weight, out),
        (None, None, None, 1e-5, 0),
        stream,
        before,
    )


def gemm_cost(a, b, out, stream=None, before=lambda: None):
    """The cost of gemm(a, b, out=out, is_b_static=True)."""
    return _breakdown(
        lambda a, b, out: tessera.gemm(a, b, out=out, is_b_static=True),
        lib.gemm,
        (a, b, out),
        (None, None, None, None, -1, 4, 0),
        stream,
        before,
    )
