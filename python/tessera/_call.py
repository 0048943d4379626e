# One call of the C ABI: borrow the tensors, find the stream, run, raise what went wrong.
# SPDX-License-Identifier: MIT
"""The path every operation takes, kept short: it is most of what a small call costs."""

import ctypes
import threading
from contextlib import contextmanager

from . import _dlpack
from ._library import Context, Error, NotSupported, lib, raise_error

_by_type = _dlpack._by_type


class _Options(threading.local):
    """What `using` has set on this thread: keyword arguments of Context, or None."""

    current = None


_options = _Options()
_contexts = {}  # stream -> (Context, its address); written once each, so threads may share them


def _new_context(stream, **fields):
    context = Context(ctypes.sizeof(Context), stream, **fields)
    return context, ctypes.addressof(context)


def _remember(stream):
    """The context for a stream and no options. The caller holds it, so clearing is safe."""
    if len(_contexts) >= 1024:  # a program that makes streams without end
        _contexts.clear()
    return _contexts.setdefault(stream, _new_context(stream))


class Op:
    """A C function with the names of its tensors, for messages, and of those it writes."""

    __slots__ = ("name", "function", "arguments", "writes")

    def __init__(self, name, arguments, writes):
        self.name = name
        self.function = getattr(lib, name)
        self.arguments = arguments.split()
        self.writes = frozenset(writes.split())

    def __call__(self, tensors, *scalars):
        """Runs with `tensors` in the order of the C function; None stands for an absent one.

        Absent ones at the end may come first among `scalars` instead.
        """
        first = tensors[0]
        keep = []
        try:
            framework = _by_type[type(first)]
            addresses = framework.borrow_all(tensors, keep)
        except Exception:  # unusual, of two frameworks, or wrong: the careful way sorts it out
            keep = []
            addresses = _dlpack.borrow_carefully(
                self.name, self.arguments, self.writes, tensors, keep
            )
            framework = _dlpack.framework_of(first)
        stream = framework.stream(first)
        if _options.current is not None:
            stream, context = _context_with_options(stream)
        elif stream is None:
            context = (None, None)
        else:
            context = _contexts.get(stream) or _remember(stream)
        status = self.function(*addresses, *scalars, context[1])  # lets other threads run
        if status:
            raise_error(status)
        if stream is not None and framework.waits_after:
            _wait(first, stream)


def _context_with_options(stream):
    fields = dict(_options.current)
    stream = fields.pop("stream", stream)
    return stream, _new_context(stream, **fields)


def _wait(tensor, stream):
    status = lib.synchronize(tensor.__dlpack_device__()[1], stream)
    if status:
        raise_error(status)


@contextmanager
def using(*, row=None, batch_invariant=None, stream=None):
    """Settings for the calls this thread makes inside the `with` block.

    row: run exactly this kernel (a name from `rows()`). batch_invariant: only kernels whose result
    for one row does not depend on the others. stream: the address of a cudaStream_t to run on, in
    place of the framework's current one.
    """
    fields = dict(_options.current or {})
    if row is not None:
        fields["row"] = row.encode()
    if batch_invariant is not None:
        fields["batch_invariant"] = int(batch_invariant)
    if stream is not None:
        fields["stream"] = stream
    with _set_options(fields):
        yield


@contextmanager
def _set_options(fields):
    before = _options.current
    _options.current = fields
    try:
        yield
    finally:
        _options.current = before


def supports(op, *args, **kwargs):
    """Whether op(*args, **kwargs) would be served; nothing is computed.

    `supports(tessera.rms_norm, x, weight, out=y)`. What is no tensor at all raises Error.
    """
    with _set_options({**(_options.current or {}), "check_only": 1}):
        try:
            op(*args, **kwargs)
        except NotSupported:
            return False
    return True


def _framework_of_first(op, tensor):
    try:
        return _dlpack.framework_of(tensor)
    except Error as error:
        raise Error(f"{op}: the first tensor {error}") from None


def empty(op, like, shape, dtype):
    """A tensor of the framework of `like`, on its device; `dtype` is a canonical name."""
    framework = _framework_of_first(op, like)
    try:
        return framework.empty(like, shape, dtype)
    except Error as error:
        raise Error(f"{op}: out cannot be made: {error}") from None


def empty_like(op, like):
    """The same with the shape and dtype of `like`, contiguous whatever its strides."""
    framework = _framework_of_first(op, like)
    try:
        return framework.empty_like(like)
    except Error as error:
        raise Error(f"{op}: out cannot be made: {error}") from None
