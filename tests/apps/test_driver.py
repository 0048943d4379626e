# A driver that is too old is named, with the versions, and does not silently become a CPU run.
# SPDX-License-Identifier: MIT
import os
import shutil
import subprocess

import pytest

from conftest import MODEL, call, call_json

# A stub of the CUDA 12.0 driver with the functions that the runtime calls.
DRIVER = """
int cuDriverGetVersion(int* version) { *version = 12000; return 0; }
int cuInit(unsigned flags) { (void)flags; return 0; }
"""


@pytest.fixture(scope="module")
def old_driver(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    if not call_json("doctor", "--json")["cuda_runtime"]:
        pytest.skip("a build without CUDA")
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "driver.c"
    source.write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)],
                   check=True)
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


def test_an_old_driver_is_named_with_the_versions(old_driver):
    runtime = call_json("doctor", "--json")["cuda_runtime"]
    words = f"the NVIDIA driver supports CUDA up to 12.0, and this build uses CUDA {runtime}"
    done = call("run", MODEL, "The city of", "-n", 2, "-t", 0, **old_driver)
    assert done.returncode == 0, done.stderr
    assert f"tessera: running on the CPU: {words}" in done.stderr
    refused = call("run", MODEL, "x", "--device", "cuda:0", **old_driver)
    assert refused.returncode == 1 and words in refused.stderr
    assert words in call("doctor", **old_driver).stdout
    assert words in call_json("doctor", "--json", **old_driver)["cuda_problem"]
