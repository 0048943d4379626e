# One call of the C ABI: borrow the tensors, find the stream, run, raise what went wrong.
# SPDX-License-Identifier: MIT
"""Every operation goes through `run`, kept short because it is most of a small call's cost."""

import ctypes
import threading
from contextlib import contextmanager
from ctypes import addressof, byref, sizeof
from functools import lru_cache

from . import _frameworks
from ._dlpack import on_objects
from ._frameworks import canonical, code_of
from ._library import Error, NotSupported, lib, raise_error, whole
from ._operations import DTYPES, OPERATIONS, Context

_by_type = _frameworks.by_type
# Arguments in the forms that ctypes passes fastest to a function without argtypes.
_as_object = ctypes.py_object.from_param
as_float = ctypes.c_float

# The options of a thread that only wants to know which tensors an operation makes.
SHAPES_ONLY: dict = {}


class _Options(threading.local):
    """What `using` has set on this thread: keyword arguments of Context, or None."""

    current = None


_options = _Options()
_contexts: dict = {}  # stream -> context; written once each, so threads may share them


def make_op(name, reads=""):
    """The operation `name`; `reads` names tensors that this use of it does not write.

    To be called with a tuple of tensors in the order of C, None for an absent one and those at the
    end left out, and then the scalars: floats as_float, or a pointer that `pack` made.
    """
    op = OPERATIONS[name]
    function = on_objects(name)
    reads = frozenset(reads.split())

    def run(tensors, *scalars):
        try:
            framework = _by_type[type(tensors[0])]
            objects = framework.objects(tensors)  # held until the call returns
            if framework.finds_stream and _options.current is None:
                context = None
            else:
                context = _context(framework.stream(tensors[0]))
        except Exception:  # an unusual tensor, two frameworks or a mistake: find out which
            return _run_carefully(name, op, reads, tensors, scalars)
        # Not inside the try: if a signal handler raises here, the operation must not run twice.
        status = function(framework.reader, _as_object(objects), context, *scalars)
        if status > 0:
            raise_error(status)
        if status:  # an object could not be read, and nothing was run
            _run_carefully(name, op, reads, tensors, scalars)

    return run


def make_struct_op(name, reads=""):
    """(run, pack) of an operation that takes a struct.

    `pack` makes a pointer to the struct without its tensors from the scalars in the order of C:
    names for enums and formats, None for 0. `run` takes it in place of the scalars.
    """
    op = OPERATIONS[name]
    checks = [(scalar, _checked(scalar, f"{name}: {scalar.name}")) for scalar in op.scalars]

    def make(*values):
        struct = op.struct(struct_size=sizeof(op.struct))
        for (scalar, check), value in zip(checks, values):
            is_zero = value is None and None not in (scalar.values or ())
            setattr(struct, scalar.name, 0 if is_zero else check(value))
        return byref(struct)

    cached = lru_cache(maxsize=256, typed=True)(make)

    def pack(*values):
        try:
            return cached(*values)
        except TypeError:  # a value that cannot be hashed: find out which
            return make(*values)

    return make_op(name, reads), pack


def _checked(scalar, what):
    """The function that turns a value into what the field of a struct takes."""
    if scalar.values is DTYPES:
        return lambda value: code_of(value, what)
    if scalar.values is not None:
        return lambda value: number_of(value, scalar.values, what)
    if scalar.schema == "bool":
        return bool
    if scalar.schema == "float":
        return lambda value: _real(value, what)
    bits = 8 * sizeof(scalar.ctype)
    is_unsigned = scalar.ctype(-1).value > 0
    low, high = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda value: whole(value, what, low, high)


def _real(value, what):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error(f"{what} is {value!r}; want a number") from None


def number_of(name, values, what):
    """The number that a name stands for, or the names there are."""
    try:
        return values[name]
    except (KeyError, TypeError):
        *names, last = map(repr, values)
        raise Error(f"{what} is {name!r}; want {', '.join(names)} or {last}") from None


def _call_on_addresses(name, op, addresses, scalars, context):
    """Calls the C function with addresses of DLTensors; ctypes lets other threads run meanwhile."""
    function = getattr(lib, name)
    if op.struct is None:
        return function(*addresses, *scalars, context)
    args = op.struct.from_buffer_copy(scalars[0]._obj)
    for tensor, address in zip(op.tensors, addresses):
        setattr(args, tensor, address)
    return function(addressof(args), context)


def _run_carefully(name, op, reads, tensors, scalars):
    """The same for tensors of any kind, or the reason why not."""
    if _options.current is SHAPES_ONLY:
        return
    keep = []
    given = {arg for arg, tensor in zip(op.tensors, tensors) if tensor is not None}
    writes = op.written - reads
    writes |= {arg for arg, other in op.written_with.items() if other in given}
    addresses = _frameworks.borrow_carefully(name, op.tensors, writes, tensors, keep)
    addresses += [None] * (len(op.tensors) - len(addresses))
    framework = _frameworks.framework_of(tensors[0])
    stream = framework.stream(tensors[0])
    status = _call_on_addresses(name, op, addresses, scalars, _context(stream))
    if status:
        raise_error(status)
    if stream is not None and framework.waits_after:
        stream = (_options.current or {}).get("stream", stream)
        status = lib.synchronize(tensors[0].__dlpack_device__()[1], stream)
        if status:
            raise_error(status)


def _context(stream):
    """A pointer to the context of a call on a stream, with this thread's options."""
    options = _options.current
    if options is SHAPES_ONLY:
        raise Error("no operation is run for its shapes")
    if options is not None:
        return byref(Context(sizeof(Context), **{"stream": stream, **options}))
    if stream is None:
        return None
    if len(_contexts) >= 1024:  # the program keeps making streams
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
def shapes_only():
    """Operations of this thread make their results and run nothing inside the `with` block."""
    with _set_options(SHAPES_ONLY):
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

    `supports(tessera.rms_norm, x, weight, out=y)`. An argument that is no tensor raises Error.
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
    """The shape as a tuple of at least `least_rank` sizes; refuses what has none."""
    shape = getattr(tensor, "shape", None)
    if shape is None:
        raise Error(f"{op}: {name} is a {type(tensor).__name__}; want a tensor")
    if len(shape) < least_rank:
        raise Error(f"{op}: {name} has {len(shape)} axes; want at least {least_rank}")
    return tuple(shape)


def dtype_of(op, name, tensor):
    """The canonical name of a tensor's dtype; refuses what has none."""
    dtype = getattr(tensor, "dtype", None)
    if dtype is None:
        raise Error(f"{op}: {name} is a {type(tensor).__name__}; want a tensor")
    return canonical(dtype, f"{op}: dtype of {name}")


def _framework_of_first(op, tensor):
    try:
        return _frameworks.framework_of(tensor)
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
    """A contiguous tensor with the shape and dtype of `like`."""
    framework = _framework_of_first(op, like)
    try:
        return framework.empty_like(like)
    except Error as error:
        raise _cannot_make(op, "out", error) from None
