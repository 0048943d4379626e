# Tessera from Python: LLM-inference kernels over anything with __dlpack__.
# SPDX-License-Identifier: MIT
"""Operations of the Tessera library on tensors of PyTorch, CuPy, NumPy and (to read) JAX.

GPU work runs on the framework's current stream, and calls do not wait for it. With `out=None` the
result is a new tensor of the first tensor's framework. A refused call raises `tessera.Error` with
the library's message. `import tessera.torch` registers the operations as `torch.ops.tessera`.

`tessera.LLM(folder)` loads a whole model: `generate`, `chat`, `stream`, `score`, `embed`.
"""

from ._attention import attention_cascade, attention_decode, attention_merge, attention_prefill
from ._call import supports, using
from ._elementwise import (
    argmax,
    copy,
    dequantize,
    embedding,
    gelu,
    gelu_mul,
    layer_norm,
    make_rope_table,
    quantize,
    reduce,
    relu,
    rms_norm,
    rope,
    scale,
    silu,
    silu_mul,
    softmax,
    transpose,
)
from ._gemm import expand_2_4, gemm, gemm_2_4, pack_gate_up, prune_2_4, sum_weight_rows
from ._kv_cache import kv_append, kv_copy_pages, kv_gather
from ._library import (
    DeviceInfo,
    Error,
    NotSupported,
    OutOfMemory,
    RequestError,
    Row,
    cuda_version,
    device_info,
    num_cuda_devices,
    rows,
)
from ._library import commit as __commit__
from ._library import path as library_path
from ._library import version as __version__
from ._llm import LLM, default_model
from ._results import Completion, Delta, Result, SamplingParams, Score, TokenLogprob, Usage
from ._sampling import sample, token_logprobs, top_logprobs
from ._weights import pack_weight, preferred_packing

__all__ = [
    "__commit__",
    "__version__",
    "Completion",
    "Delta",
    "DeviceInfo",
    "Error",
    "LLM",
    "NotSupported",
    "OutOfMemory",
    "RequestError",
    "Result",
    "Row",
    "SamplingParams",
    "Score",
    "TokenLogprob",
    "Usage",
    "argmax",
    "attention_cascade",
    "attention_decode",
    "attention_merge",
    "attention_prefill",
    "copy",
    "cuda_version",
    "default_model",
    "dequantize",
    "device_info",
    "embedding",
    "expand_2_4",
    "gelu",
    "gelu_mul",
    "gemm",
    "gemm_2_4",
    "kv_append",
    "kv_copy_pages",
    "kv_gather",
    "layer_norm",
    "library_path",
    "make_rope_table",
    "num_cuda_devices",
    "pack_gate_up",
    "pack_weight",
    "preferred_packing",
    "prune_2_4",
    "quantize",
    "reduce",
    "relu",
    "rms_norm",
    "rope",
    "rows",
    "sample",
    "scale",
    "silu",
    "silu_mul",
    "softmax",
    "sum_weight_rows",
    "supports",
    "token_logprobs",
    "top_logprobs",
    "transpose",
    "using",
]
