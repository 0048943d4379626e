// cuBLASLt, loaded at run time as a table of functions, so that nothing links against it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cublasLt.h>

namespace tessera {

// Descriptors and layouts are plain structs of cublasLt.h, filled by the functions that end in
// _internal. The header's inline wrappers call these directly and would have to be linked.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_desc = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

// Loads the library at the first call, which takes a fraction of a second. Null if it is not
// installed or lacks a function.
const CublasLt* cublaslt();

// The library's handle for the current device, made once. Null if there is no device, or no memory
// for a handle.
cublasLtHandle_t cublaslt_handle();

}  // namespace tessera
