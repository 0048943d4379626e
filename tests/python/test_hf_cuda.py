# Modules, patched Transformers models and graphs on a GPU.
# SPDX-License-Identifier: MIT
import os

import pytest

torch = pytest.importorskip("torch")
import hf_cuda_cases  # noqa: E402
import tessera  # noqa: E402


def _missing():
    if not torch.cuda.is_available():
        return "torch.cuda is not available"
    return "" if tessera.num_cuda_devices() else "libtessera sees no CUDA device"


@pytest.mark.parametrize("name", hf_cuda_cases.CASES)
def test_on_a_gpu(name):
    why = _missing()
    if why and os.environ.get("TESSERA_REQUIRE_GPU") == "1":
        pytest.fail(f"{why}, and TESSERA_REQUIRE_GPU=1")
    if why:
        pytest.skip(why)
    hf_cuda_cases.CASES[name]()
