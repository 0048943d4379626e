// cuBLASLt, found at run time: what is used of it as a table of functions, nothing to link.
// SPDX-License-Identifier: MIT
#pragma once

#include <cublasLt.h>

namespace tessera {

// Descriptors and layouts are plain structs of its header, filled in place by the functions that
// end in _internal: those behind the header's own inline wrappers, which would have to be linked.
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

// Opened at the first call, which takes a fraction of a second, and kept; null where it is not
// installed or lacks a function.
const CublasLt* cublaslt();

// The library's handle for the current device, made once and kept. Null where that fails: there is
// no device, or no memory for it.
cublasLtHandle_t cublaslt_handle();

}  // namespace tessera
