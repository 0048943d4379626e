# One call of the C ABI: borrow the tensors, find the stream, run, raise what went wrong.
# SPDX-License-Identifier: MIT
"""The path every operation takes, kept short: it is most of what a small call costs."""

import operator
import threading
from contextlib import contextmanager
from ctypes import addressof, byref, c_void_p, sizeof

from . import _dlpack
from ._dtypes import canonical
from ._library import Context, Error, NotSupported, lib, raise_error
from ._objects import as_object, on_objects

_by_type = _dlpack._by_type


class _Options(threading.local):
    """What `using` has set on this thread: keyword arguments of Context, or None."""

    current = None


_options = _Options()
_contexts = {}  # stream -> context; written once each, so threads may share them


def make_op(name, arguments, writes, on_addresses=None):
    """The C function `name`, given the names of its tensors and of those it writes.

    on_addresses: what calls it with addresses of tensors, the scalars and a context; itself, unless
    it takes a struct.

    To be called with a tuple of tensors in the order of the C function, None for an absent one and
    those at the end left out, and then the scalars, floats as_float.
    """
    function = on_objects(name)
    on_addresses = on_addresses or getattr(lib, name)
    arguments = arguments.split()
    writes = frozenset(writes.split())

    def run(tensors, *scalars):
        try:
            framework = _by_type[type(tensors[0])]
            objects = framework.objects(tensors)  # held until the call returns
            if framework.finds_stream and _options.current is None:
                context = None
            else:
                context = _context(framework.stream(tensors[0]))
        except Exception:  # unusual, of two frameworks, or wrong: the careful way sorts it out
            return _run_carefully(on_addresses, name, arguments, writes, tensors, scalars)
        # Outside the try: an exception of a signal handler must not make the operation run twice.
        status = function(framework.reader, as_object(objects), context, *scalars)
        if status > 0:
            raise_error(status)
        if status:  # an object could not be read, and nothing was run
            _run_carefully(on_addresses, name, arguments, writes, tensors, scalars)

    return run


def make_struct_op(name, struct, writes):
    """The same for a C function with a struct of arguments, whose fields name the tensors.

    In place of scalars it is called with a pointer to the struct without its tensors.
    """
    tensors = [field for field, kind in struct._fields_ if kind is c_void_p]
    function = getattr(lib, name)

    def on_addresses(*values):
        *addresses, scalars, context = values
        args = struct.from_buffer_copy(scalars._obj)
        for field, address in zip(tensors, addresses):
            setattr(args, field, address)
        return function(addressof(args), context)

    return make_op(name, " ".join(tensors), writes, on_addresses)


def _run_carefully(on_addresses, name, arguments, writes, tensors, scalars):
    """The same for tensors of any kind, or the reason why not."""
    keep = []
    addresses = _dlpack.borrow_carefully(name, arguments, writes, tensors, keep)
    addresses += [None] * (len(arguments) - len(addresses))
    framework = _dlpack.framework_of(tensors[0])
    stream = framework.stream(tensors[0])
    status = on_addresses(*addresses, *scalars, _context(stream))  # lets other threads run
    if status:
        raise_error(status)
    if stream is not None and framework.waits_after:
        stream = (_options.current or {}).get("stream", stream)
        status = lib.synchronize(tensors[0].__dlpack_device__()[1], stream)
        if status:
            raise_error(status)


def _context(stream):
    """A pointer to the context of a call on a stream, with this thread's options."""
    if _options.current is not None:
        return byref(Context(sizeof(Context), **{"stream": stream, **_options.current}))
    if stream is None:
        return None
    if len(_contexts) >= 1024:  # a program that makes streams without end
        _contexts.clear()
    return _contexts.get(stream) or _contexts.setdefault(
        stream, byref(Context(sizeof(Context), stream))
    )


@contextmanager
def using(*, row=None, batch_invariant=None, stream=None):
    """Settings for the calls this thread makes inside the `with` block.

    row: run exactly this kernel (a name from `rows()`). batch_invariant: only kernels whose result
    for one row does not depend on the others. stream: the address of a cudaStream_t to run on, in
    place of the framework's current one.
    """
    fields = dict(_options.current or {})
    if row is not None:
        if not isinstance(row, str):
            raise Error(f"using: row is a {type(row).__name__}; want a name from rows()")
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


def names_stream():
    """Whether `using` has named the stream of this thread's calls."""
    return "stream" in (_options.current or {})


def shape_of(op, name, tensor, *, least_rank=0):
    """As a tuple of at least `least_rank` sizes, or the words for what has none."""
    shape = getattr(tensor, "shape", None)
    if shape is None:
        raise Error(f"{op}: {name} is a {type(tensor).__name__}; want a tensor")
    if len(shape) < least_rank:
        raise Error(f"{op}: {name} has {len(shape)} axes; want at least {least_rank}")
    return tuple(shape)


def dtype_of(op, name, tensor):
    """The canonical name of a tensor's dtype, or the words for what has none."""
    dtype = getattr(tensor, "dtype", None)
    if dtype is None:
        raise Error(f"{op}: {name} is a {type(tensor).__name__}; want a tensor")
    return canonical(dtype, f"{op}: dtype of {name}")


def whole(value, what, low=0, high=2**63 - 1):
    """An integer within its bounds; ctypes would take any other modulo a power of two."""
    try:
        value = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; want a whole number") from None
    if not low <= value <= high:
        raise Error(f"{what} is {value}; want {low} to {high}")
    return value


def _framework_of_first(op, tensor):
    try:
        return _dlpack.framework_of(tensor)
    except Error as error:
        raise Error(f"{op}: the first tensor {error}") from None


def _cannot_make(op, name, error):
    """The refusal to make a tensor, with the remedy."""
    return Error(
        f"{op}: {name} cannot be made: {error}: pass {name}=, a tensor that can be written"
    )


def empty(op, like, shape, dtype, name="out"):
    """A tensor of the framework of `like`, on its device; `dtype` is a canonical name.

    name: the argument it stands in for.
    """
    framework = _framework_of_first(op, like)
    try:
        return framework.empty(like, shape, dtype)
    except Error as error:
        raise _cannot_make(op, name, error) from None


def empty_like(op, like):
    """The same with the shape and dtype of `like`, contiguous whatever its strides."""
    framework = _framework_of_first(op, like)
    try:
        return framework.empty_like(like)
    except Error as error:
        raise _cannot_make(op, "out", error) from None
