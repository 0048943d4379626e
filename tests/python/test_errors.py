# What is refused, in which words, and what the package says of itself.
# SPDX-License-Identifier: MIT
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tessera


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def attend(**options):
    q = ones(1, 2, 1, 8)
    return tessera.attention_prefill(q, q, q, **options)


REFUSED = {
    "a shape": (lambda: tessera.rms_norm(ones(2, 8), ones(7)), r"rms_norm: weight is f32\[7\]"),
    "a dtype": (
        lambda: tessera.rms_norm(ones(2, 8), ones(8, dtype="float16")),
        "rms_norm: weight is f16 and rms_norm: x is f32",
    ),
    "a stride": (lambda: tessera.rms_norm(ones(8, 4).T, ones(8)), "rms_norm: x .*"),
    "a type of no use": (
        lambda: tessera.silu(ones(2, 8, dtype="int32")),
        "activation: x is i32.*must be one of f32, f16, bf16",
    ),
    "float64": (
        lambda: tessera.silu(ones(2, 8, dtype="float64")),
        "activation: x has dtype float64; Tessera takes float32",
    ),
    "complex": (lambda: tessera.silu(ones(2, 8, dtype="complex64")), "has dtype complex64"),
    "misaligned data": (
        lambda: tessera.silu(np.ndarray((2, 2), np.float32, bytearray(17), offset=1)),
        "activation: x begins at an address that is . bytes off a multiple of 4",
    ),
    "a list": (lambda: tessera.silu([1.0, 2.0]), "is a list; want a tensor with __dlpack__"),
    "a list in second place": (
        lambda: tessera.rms_norm(ones(2, 2), [1.0, 2.0]),
        "rms_norm: weight is a list",
    ),
    "an unknown dtype": (
        lambda: tessera.quantize(ones(2, 8), "int3"),
        "quantize: dtype is 'int3'; want one of float32",
    ),
    "a group size": (lambda: tessera.quantize(ones(2, 8), "int8", per=3), "per is 3 for 8 columns"),
    "an unknown style": (
        lambda: tessera.rope(ones(1, 1, 8), None, ones(1), ones(1, 8), style="spiral"),
        "style is 'spiral'; want 'half_split' or 'interleaved'",
    ),
    "an unknown reduction": (lambda: tessera.reduce(ones(2, 8), "median"), "kind is 'median'"),
    "an approximation": (
        lambda: tessera.gelu(ones(2), approximate="quick"),
        "want 'none' or 'tanh'",
    ),
    "rope scaling": (
        lambda: tessera.make_rope_table(4, 8, scaling={"rope_type": "dynamic"}),
        "rope_type is 'dynamic'; want one of",
    ),
    "a rope field": (
        lambda: tessera.make_rope_table(4, 8, scaling={"rope_type": "linear", "factr": 2}),
        "scaling has 'factr'",
    ),
    "an id": (
        lambda: tessera.embedding(ones(4, 8), np.array([4], np.int32)),
        "embedding: .*4",
    ),
    "a scale without its zero point": (
        lambda: tessera.quantize(ones(2, 8), "uint8", scale=ones(1, 1)),
        "scale is given without zero_point",
    ),
    "storage": (
        lambda: tessera.dequantize(ones(2, 8), ones(1, 1), format="float8_e4m3fn"),
        "dequantize: x holds f32 but its format is e4m3",
    ),
    "a negative seed": (
        lambda: attend(dropout_seed=-1),
        "dropout_seed is -1; want 0 to 18446744073709551615",
    ),
    "a seed of 65 bits": (
        lambda: attend(dropout_seed=2**64),
        "dropout_seed is 18446744073709551616",
    ),
    "a seed that is no number": (lambda: attend(dropout_seed="x"), "dropout_seed is 'x'; want a"),
    "a scale that is no number": (lambda: attend(scale=[1.0]), r"scale is \[1.0\]; want a number"),
    "a softcap that is text": (lambda: attend(softcap="x"), "softcap is 'x'; want a number"),
    "a format that is a list": (lambda: attend(format=["i8"]), "format is .*; want one of float32"),
    "a window of 2^63": (lambda: attend(window=(2**63, None)), "window is 9223372036854775808"),
    "a device of 33 bits": (lambda: tessera.device_info(2**32), "index is 4294967296"),
    "a row that is no name": (lambda: tessera.using(row=3).__enter__(), "row is a int"),
    "a scalar": (lambda: tessera.quantize(np.float32(1), "int8"), "x has 0 axes; want at least 1"),
    "a device": (lambda: tessera.device_info(99), "there is no CUDA device 99"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, words = REFUSED[name]
    with pytest.raises(tessera.Error, match=words):
        call()


def test_an_error_says_apart_from_its_message_where_it_was_raised():
    with pytest.raises(tessera.Error) as caught:
        tessera.rms_norm(ones(2, 8), ones(7))
    assert ".cpp" not in str(caught.value)
    assert ".cpp:" in caught.value.where
# Every operation: the rank of each required tensor, and the other required arguments.
OPERATIONS = {
    "argmax": ([2],),
    "attention_cascade": ([4, 4, 4, 1, 4, 4, 1],),
    "attention_decode": ([4, 4, 4, 1],),
    "attention_merge": ([4, 3],),
    "attention_prefill": ([4] * 3,),
    "copy": ([2],),
    "dequantize": ([2, 2],),
    "embedding": ([2, 1],),
    "expand_2_4": ([2, 3],),
    "gelu": ([2],),
    "gelu_mul": ([2, 2],),
    "gemm": ([2, 2],),
    "gemm_2_4": ([2, 2, 3],),
    "kv_append": ([3, 3, 1, 4, 4],),
    "kv_copy_pages": ([4, 4, 1, 1],),
    "kv_gather": ([4, 4, 1, 1, 3, 3],),
    "layer_norm": ([2, 1],),
    "pack_gate_up": ([2, 2],),
    "pack_weight": ([2, 2],),
    "preferred_packing": ([2, 2, 2],),
    "prune_2_4": ([2],),
    "quantize": ([2], "int8"),
    "reduce": ([2], "sum"),
    "relu": ([2],),
    "rms_norm": ([2, 1],),
    "rope": ([3, 3, 1, 2],),
    "sample": ([2],),
    "scale": ([2],),
    "silu": ([2],),
    "silu_mul": ([2, 2],),
    "softmax": ([2],),
    "sum_weight_rows": ([2],),
    "token_logprobs": ([2, 1],),
    "top_logprobs": ([2, 1], 3),
    "transpose": ([2],),
}
OTHERS = {
    *("__commit__", "__version__", "DeviceInfo", "Error", "NotSupported", "Row", "cuda_version"),
    *("device_info", "library_path", "make_rope_table", "num_cuda_devices", "rows", "supports"),
    *("using", "LLM", "default_model", "SamplingParams", "Completion", "Delta", "Result", "Score"),
    *("TokenLogprob", "Usage", "OutOfMemory", "RequestError"),
}


class Shaped:
    """Has a shape and nothing else."""

    shape = (2, 8)


WRONG = [None, 3, "text", [1.0], Shaped(), object()]


def test_every_operation_is_tried():
    assert set(OPERATIONS) | OTHERS == set(tessera.__all__)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_what_is_no_tensor_is_refused_by_an_error_in_any_place(name, wrong):
    ranks, *words = OPERATIONS[name]
    for place in range(len(ranks)):
        if wrong is None and (name, place) == ("rope", 1):
            continue  # k may be absent
        tensors = [ones(*[2] * (rank - 1), 8) for rank in ranks]
        tensors[place] = wrong
        with pytest.raises(tessera.Error):
            getattr(tessera, name)(*tensors, *words)


@pytest.mark.parametrize("wrong", WRONG[1:], ids=lambda wrong: type(wrong).__name__)
def test_an_out_that_is_no_tensor_is_refused_by_an_error(wrong):
    for call in (
        lambda: tessera.quantize(ones(2, 8), "uint8", out=(wrong, wrong)),
        lambda: tessera.rms_norm(ones(2, 8), ones(8), dtype="int8", out=wrong),
        lambda: tessera.embedding(ones(2, 8), np.zeros(2, np.int32), out=wrong),
    ):
        with pytest.raises(tessera.Error):
            call()


def read_only(x):
    x.flags.writeable = False
    return x


def test_read_only_arrays_are_read_and_never_written():
    x, weight = read_only(ones(2, 8)), read_only(ones(8))
    np.testing.assert_allclose(tessera.rms_norm(x, weight), x, rtol=1e-4)
    with pytest.raises(tessera.Error, match="silu|activation: out is read-only"):
        tessera.silu(ones(2, 8), out=x)


def test_foreign_byte_order_is_refused():
    with pytest.raises(tessera.Error, match="byte order"):
        tessera.copy(ones(4).astype(">f4"), out=ones(4))


def test_gpu_rows_are_not_for_cpu_tensors():
    with tessera.using(row="rms_norm_bf16"):
        with pytest.raises(tessera.Error, match="rms_norm_bf16"):
            tessera.rms_norm(ones(2, 8), ones(8))
        assert not tessera.supports(tessera.rms_norm, ones(2, 8), ones(8))
    tessera.rms_norm(ones(2, 8), ones(8))


def test_supports_asks_without_running():
    x, weight, out = ones(2, 8), ones(8), np.zeros((2, 8), np.float32)
    assert tessera.supports(tessera.rms_norm, x, weight, out=out)
    assert not out.any()
    assert not tessera.supports(tessera.rms_norm, x, ones(7), out=out)


def test_options_are_a_threads_own_and_end_with_the_block():
    seen = []
    with tessera.using(row="no_such_row"):
        other = threading.Thread(target=lambda: seen.append(tessera.silu(ones(2))))
        other.start()
        other.join()
    assert len(seen) == 1
    tessera.silu(ones(2))


def test_a_thread_reads_its_own_message():
    messages = []

    def refuse(width):
        for _ in range(200):
            try:
                tessera.rms_norm(ones(2, 8), ones(width))
            except tessera.Error as error:
                messages.append(f"[{width}]" in str(error))

    threads = [threading.Thread(target=refuse, args=(width,)) for width in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(messages) == 600 and all(messages)


def test_a_call_may_be_made_from_inside_a_call():
    class Chatty(np.ndarray):
        def __dlpack__(self, **arguments):
            tessera.relu(ones(3), out=np.empty(3, np.float32))
            return super().__dlpack__(**arguments)

    x, weight, out = (ones(2, 8) * 3).view(Chatty), ones(8).view(Chatty), ones(2, 8).view(Chatty)
    for _ in range(3):  # the first call registers a new type
        out[:] = 0
        tessera.rms_norm(x, weight, 0.0, out=out)
        np.testing.assert_array_equal(np.asarray(out), ones(2, 8))


def test_threads_do_not_share_tensors():
    def run(value, results):
        x, out = ones(2, 64) * value, ones(2, 64)
        for _ in range(500):
            tessera.copy(x, out=out)
            results.append(bool((out == value).all()))

    results = []
    threads = [threading.Thread(target=run, args=(value, results)) for value in (2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1500 and all(results)


def test_other_threads_run_during_an_operation():
    x = np.ones((1 << 13, 1 << 12), "float32")
    out = np.empty_like(x)
    tessera.softmax(x, out=out)
    spans, wakes = [], []

    def work():
        start = time.monotonic()
        tessera.softmax(x, out=out)
        spans.append((start, time.monotonic()))

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        wakes.append(time.monotonic())
        time.sleep(0.001)
    start, end = spans[0]
    inside = [wake for wake in wakes if start < wake < end]
    # If the work held the lock, this thread would not wake before its end.
    assert len(inside) > 3, f"woke {len(inside)} times in {end - start:.3f} s"


def test_an_exception_of_a_signal_handler_is_not_lost():
    signal = pytest.importorskip("signal")

    def interrupt(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    x = np.ones((1 << 13, 1 << 12), "float32")
    residual, out = np.zeros_like(x), np.zeros_like(x)
    try:
        tessera.copy(x, out=out)
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        with pytest.raises(TimeoutError):
            tessera.rms_norm(x, np.ones(1 << 12, "float32"), residual=residual, out=out)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert residual.max() <= 1  # the residual was added at most once


def test_anything_with_dlpack_is_taken():
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    out = np.zeros((2, 8), np.float32)
    tessera.rms_norm(Wrapped(ones(2, 8)), Wrapped(ones(8)), 0.0, out=Wrapped(out))
    np.testing.assert_array_equal(out, ones(2, 8))
    with pytest.raises(tessera.Error, match="cannot allocate a Shaped: pass out="):
        tessera.silu(type("Shaped", (Wrapped,), {"shape": (2,), "dtype": "float32"})(ones(2)))


def test_jax_arrays_are_read_and_never_written():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(8.0).reshape(2, 4)
    out = np.zeros((2, 4), np.float32)
    tessera.relu(x, out=out)
    np.testing.assert_array_equal(out, np.asarray(x))
    with pytest.raises(tessera.Error, match="JAX.*immutable"):
        tessera.relu(out, out=x)
    with pytest.raises(tessera.Error, match="JAX arrays are immutable: pass out="):
        tessera.relu(x)


def test_bfloat16_arrays_of_ml_dtypes_are_taken():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(-4, 4).astype(ml_dtypes.bfloat16).reshape(2, 4)
    np.testing.assert_array_equal(tessera.relu(x).astype("f4"), np.maximum(x.astype("f4"), 0))


def test_says_what_it_is():
    assert tessera.__version__.count(".") == 2
    assert os.path.basename(tessera.library_path).startswith("libtessera")
    assert all(row.name.startswith(row.op) for row in tessera.rows())
    assert tessera.num_cuda_devices() >= 0
    for name in tessera.__all__:
        assert hasattr(tessera, name), name


def import_with(library):
    environment = dict(os.environ, TESSERA_LIBRARY=library)
    environment["PYTHONPATH"] = os.path.dirname(os.path.dirname(tessera.__file__))
    command = [sys.executable, "-c", "import tessera"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_missing_library_names_what_was_tried():
    result = import_with("/nowhere/libtessera.so")
    assert result.returncode != 0
    assert "/nowhere/libtessera.so ($TESSERA_LIBRARY): no such file" in result.stderr


def test_a_stranger_library_is_refused():
    import ctypes.util

    result = import_with(ctypes.util.find_library("m"))
    assert "is not this package's library" in result.stderr
