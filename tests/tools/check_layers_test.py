"""check_layers flags includes that go up, sideways or to CUDA, and accepts all others."""
# SPDX-License-Identifier: MIT

import unittest

from bad_tree import BadTreeTest

import check_layers


class CheckLayersTest(BadTreeTest):
    checker = check_layers

    def include(self, path, *headers):
        self.write(path, "".join(f"#include {header}\n" for header in headers))

    def test_an_include_that_goes_down_is_in_order(self):
        self.include("src/core/tensor.cpp", '"tessera/core/tensor.h"', "<cuda_runtime_api.h>")
        self.include("src/tile/vec.cuh", '"tessera/core/dtype.h"', '"core/library.h"',
                     "<cuda_bf16.h>")
        self.include("src/kernels/elementwise/norm.cuh", '"tile/vec.cuh"', '"kernels/launch.h"',
                     '"tessera/ops/norm.h"', '"kernels/elementwise/norm_params.h"')
        self.include("src/cpu/norm.cpp", '"cpu/elementwise.h"', "<vector>")
        self.include("src/ops/norm.cpp", '"kernels/elementwise/rows.h"', '"cpu/elementwise.h"')
        self.include("src/c_api/norm.cpp", '"tessera/c.h"', "<dlpack/dlpack.h>")
        self.include("apps/tessera.cpp", '"bench/problem.h"', '"ops/registry.h"')
        self.include("tests/tile/vec_test.cu", '"tile/vec.cuh"', "<vector>")
        self.assert_clean()

    def test_core_includes_nothing_above_it(self):
        self.include("src/core/tensor.cpp", '"ops/check.h"')
        self.assert_flagged("src/core/tensor.cpp:1", "core must not include ops/check.h")

    def test_core_shows_no_cuda_in_a_header(self):
        self.include("src/core/tensor.h", "<cuda_runtime_api.h>")
        self.assert_flagged("core may include cuda_runtime_api.h in .cpp and .cu files only")

    def test_the_cpu_sees_no_cuda(self):
        self.include("src/cpu/norm.cpp", "<cuda_fp16.h>")
        self.assert_flagged("cpu must not see CUDA")

    def test_the_cpu_sees_no_kernel(self):
        self.include("src/cpu/norm.cpp", '"kernels/elementwise/rows.h"')
        self.assert_flagged("cpu must not include kernels/elementwise/rows.h")

    def test_cuda_does_not_come_in_through_a_header_of_ours(self):
        self.include("src/ops/norm.cpp", '"core/cuda_check.h"')
        self.assert_flagged("ops must not see CUDA", "core/cuda_check.h")

    def test_ops_sees_tables_and_no_launcher(self):
        self.include("src/ops/norm.cpp", '"kernels/elementwise/launch.h"')
        self.assert_flagged("ops must not include kernels/elementwise/launch.h")

    def test_a_kernel_family_does_not_include_another(self):
        self.include("src/kernels/gemm/dense.cuh", '"kernels/elementwise/norm.cuh"')
        self.assert_flagged("kernel family gemm", "another family")

    def test_kernels_do_not_call_the_cpu(self):
        self.include("src/kernels/gemm/dense.cuh", '"cpu/elementwise.h"')
        self.assert_flagged("kernels must not include cpu/elementwise.h")

    def test_tile_stays_below_kernels(self):
        self.include("src/tile/vec.cuh", '"kernels/launch.h"')
        self.assert_flagged("tile must not include kernels/launch.h")

    def test_text_stays_below_the_engine(self):
        self.include("src/engine/sequence.h", '"text/text_stream.h"', '"tessera/text/tokenizer.h"')
        self.include("src/text/prompt.cpp", '"tessera/text/prompt.h"', '"core/text.h"')
        self.assert_clean()
        self.include("src/text/prompt.cpp", '"engine/sequence.h"')
        self.assert_flagged("src/text/prompt.cpp:1", "text must not include engine/sequence.h")

    def test_a_device_header_includes_no_container(self):
        self.include("src/tile/vec.cuh", "<vector>")
        self.assert_flagged("src/tile/vec.cuh:1", "<vector>")

    def test_a_host_file_includes_no_device_header(self):
        self.include("tests/tile/vec_test.cpp", '"tile/vec.cuh"')
        self.assert_flagged("tile/vec.cuh needs nvcc")

    def test_openmp_is_nowhere(self):
        for text in ("#pragma omp parallel for\n", "#include <omp.h>\n",
                     "#  pragma  omp critical\n", '_Pragma("omp parallel")\n',
                     "int n = omp_get_max_threads();\n"):
            for path in ("src/cpu/norm.cpp", "bench/verify.cpp", "tests/cpu/norm_test.cpp",
                         "apps/run.cpp", "ladder/gemm/main.cu"):
                with self.subTest(text=text, path=path):
                    self.write(path, text)
                    self.assert_flagged(f"{path}:1", "core/parallel.h")
                    (self.root / path).unlink()

    def test_openmp_may_be_spoken_of(self):
        self.write("src/core/parallel.cpp",
                   '// Unlike #pragma omp.\nconst char* name = "OMP_NUM_THREADS";\n')
        self.assert_clean()

    def test_a_public_header_has_no_cuda(self):
        self.include("include/tessera/core/device.h", "<cuda_runtime_api.h>")
        self.assert_flagged("public headers are free of CUDA")

    def test_a_public_header_has_no_private_one(self):
        self.include("include/tessera/ops/norm.h", '"core/text.h"')
        self.assert_flagged("which users do not have")

    def test_a_public_header_names_no_type_of_cuda(self):
        self.write("include/tessera/core/device.h", "void wait(cudaStream_t stream);\n")
        self.assert_flagged("include/tessera/core/device.h:1", "cudaStream_t")

    def test_a_comment_may_name_what_code_may_not(self):
        self.write("include/tessera/core/device.h",
                   "using Stream = CUstream_st*;  // a cudaStream_t\n"
                   "/* not\n#include <cuda_runtime_api.h>\n*/\n")
        self.assert_clean()

    def test_no_kernel_asks_for_the_architecture(self):
        self.write("src/kernels/gemm/dense.cuh", "#if __CUDA_ARCH__ >= 900\n#endif\n")
        self.assert_flagged("src/kernels/gemm/dense.cuh:1", "__CUDA_ARCH__")

    def test_an_include_does_not_climb(self):
        self.include("src/ops/norm.cpp", '"../kernels/elementwise/launch.h"')
        self.assert_flagged("leaves its folder with ..")

    def test_a_new_folder_in_src_needs_a_row_in_the_table(self):
        self.include("src/misc/thing.cpp", "<vector>")
        self.assert_flagged("misc is not a layer")


if __name__ == "__main__":
    unittest.main()
