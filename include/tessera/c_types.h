/* What every function of the C ABI shares: status codes, kinds by number, the context of a call. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

typedef enum TesseraStatus {
  TESSERA_OK = 0,
  TESSERA_ERROR = 1,          /* refused or failed: the message shows the values and the remedy */
  TESSERA_OUT_OF_MEMORY = 2,  /* of the host, or of a GPU */
  TESSERA_INTERNAL_ERROR = 3, /* an exception that is not Tessera's own */
  TESSERA_NOT_SUPPORTED = 4   /* the answer "no" to a call with TesseraContext.check_only */
} TesseraStatus;

typedef enum TesseraDType {
  TESSERA_DTYPE_AUTO = 0, /* the tensor's own */
  TESSERA_F32 = 1,
  TESSERA_F16 = 2,
  TESSERA_BF16 = 3,
  TESSERA_E4M3 = 4,
  TESSERA_E5M2 = 5,
  TESSERA_I8 = 6,
  TESSERA_U8 = 7,
  TESSERA_I4 = 8,
  TESSERA_I32 = 9,
  TESSERA_I64 = 10
} TesseraDType;

typedef enum TesseraActivation {
  TESSERA_NO_ACTIVATION = -1, /* of a product alone */
  TESSERA_RELU = 0,
  TESSERA_SILU = 1,
  TESSERA_GELU = 2,
  TESSERA_GELU_TANH = 3
} TesseraActivation;

typedef enum TesseraReduction {
  TESSERA_SUM = 0,
  TESSERA_MEAN = 1,
  TESSERA_MAX = 2,
  TESSERA_MIN = 3,
  TESSERA_ABSMAX = 4
} TesseraReduction;

typedef enum TesseraRopeStyle {
  TESSERA_ROPE_HALF_SPLIT = 0,
  TESSERA_ROPE_INTERLEAVED = 1
} TesseraRopeStyle;

typedef enum TesseraRopeScalingKind {
  TESSERA_ROPE_SCALING_NONE = 0,
  TESSERA_ROPE_SCALING_LINEAR = 1,
  TESSERA_ROPE_SCALING_LLAMA3 = 2,
  TESSERA_ROPE_SCALING_YARN = 3
} TesseraRopeScalingKind;

typedef enum TesseraScaleMode {
  TESSERA_SCALE_DYNAMIC = 0, /* scale and zero_point are computed and written */
  TESSERA_SCALE_FIXED = 1    /* scale and zero_point are read */
} TesseraScaleMode;

/* Bits of the flags of tessera_gemm, with the names of GemmArgs. */
typedef enum TesseraGemmFlags {
  TESSERA_GEMM_GATED = 1,      /* is_gated */
  TESSERA_GEMM_ALLOW_TF32 = 2, /* allow_tf32 */
  TESSERA_GEMM_STATIC_B = 4    /* is_b_static */
} TesseraGemmFlags;

/* What a call needs beside its tensors; NULL in its place means the defaults, which are zeros. The
 * caller sets struct_size = sizeof(TesseraContext), so that fields can be added at the end. */
typedef struct TesseraContext {
  uint64_t struct_size;
  void* stream;            /* a cudaStream_t; NULL is the default stream; ignored on the CPU */
  const char* row;         /* run exactly this row (see tessera_row_info); NULL: choose */
  int32_t batch_invariant; /* 1: only rows whose result does not depend on batch mates */
  int32_t check_only;      /* 1: run nothing; TESSERA_OK if the call would be served,
                              TESSERA_NOT_SUPPORTED if it would be refused */
} TesseraContext;
