# One call of the C ABI: borrow the tensors, find the stream, run, raise what went wrong.
# SPDX-License-Identifier: MIT
"""The path every operation takes, kept short: it is most of what a small call costs."""

import threading
from contextlib import contextmanager
from ctypes import byref, c_void_p, sizeof

from . import _dlpack
from ._frame import Frame
from ._library import Context, Error, NotSupported, lib, operation, raise_error

_by_type = _dlpack._by_type
_frames = []  # those not in use


class _Options(threading.local):
    """What `using` has set on this thread: keyword arguments of Context, or None."""

    current = None


_options = _Options()


def make_op(name, arguments, writes):
    """The C function `name` to be called with tensors, given their names and those it writes.

    The result takes a tuple of tensors in the order of the C function, None for an absent one, and
    then the scalars, floats as_float. Absent tensors at the end may come first among the scalars.
    """
    function = operation(name)
    arguments = arguments.split()
    writes = frozenset(writes.split())

    def run(tensors, *scalars):
        try:
            frame = _frames.pop()
        except IndexError:
            frame = Frame()
        waits = False
        try:
            pointers = _by_type[type(tensors[0])].borrow_all(tensors, frame)
        except Exception:  # unusual, of two frameworks, or wrong: the careful way sorts it out
            frame.keep = []
            addresses = _dlpack.borrow_carefully(name, arguments, writes, tensors, frame.keep)
            pointers = [None if address is None else c_void_p(address) for address in addresses]
            waits = _set_stream(frame.context, tensors[0])
        if _options.current is None:
            context = frame.context_pointer
        else:
            context = _with_options(frame.context)
        status = function(*pointers, *scalars, context)  # lets other threads run
        if status:
            raise_error(status)
        if waits:
            _wait(tensors[0], frame.context)
        frame.keep = None
        _frames.append(frame)

    return run


def _set_stream(context, tensor):
    """The tensor's current stream goes into the context. Whether to wait for it after the call."""
    framework = _dlpack.framework_of(tensor)
    context.stream = stream = framework.stream(tensor)
    return framework.waits_after and stream is not None


def _with_options(context):
    fields = {"stream": context.stream, **_options.current}
    return byref(Context(sizeof(Context), **fields))


def _wait(tensor, context):
    stream = (_options.current or {}).get("stream", context.stream)
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
