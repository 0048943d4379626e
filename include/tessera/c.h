/* The C ABI: every operation over DLPack tensors, with status codes and no exceptions. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <dlpack/dlpack.h>
#include <stdint.h>

#include "tessera/c_attention.h"
#include "tessera/c_types.h"

/* Conventions
 *   Tensors     `const DLTensor*`, borrowed for the call. A tensor marked optional may be NULL; the
 *               rest may not. Shapes, dtypes and meaning are those of the C++ header named at each
 *               function. Memory of kDLCPU and kDLCUDAHost is taken as the CPU's, of kDLCUDA and
 *               kDLCUDAManaged as the GPU's; all tensors of a call are on one device. Data is
 *               aligned to its element, and no stride leads beyond 2^60 elements; else refused.
 *   Formats     A quantising function takes a TesseraDType beside the quantised tensor, because
 *               many frameworks have no FP8 or 4-bit type. TESSERA_DTYPE_AUTO takes the tensor's
 *               own dtype; e4m3 and e5m2 may be stored as int8 or uint8; i4 is stored as int8 or
 *               uint8 [rows, cols / 2], the element with the even index in the low nibble.
 *   Errors      TESSERA_OK, or a status whose message tessera_last_error gives. Nothing is thrown.
 *   Streams     GPU work is ordered on TesseraContext.stream and not waited for.
 */

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Raised by one whenever a function or struct of this header, or of those it includes, changes
 * incompatibly. */
enum { TESSERA_ABI_VERSION = 1 };

/* Never NULL. The message of this thread's last call that did not return TESSERA_OK; valid until
 * the thread's next such call. */
const char* tessera_last_error(void);
/* Where in the library's source it was raised, "gemm.cpp:31"; "" where that is not known. */
const char* tessera_last_error_where(void);

int tessera_abi_version(void);     /* TESSERA_ABI_VERSION of the library that was loaded */
const char* tessera_version(void); /* "0.1.0" */
/* The commit the library was built from, "-dirty" behind it if tracked files had been changed;
   "unknown" if the build could not tell. */
const char* tessera_commit(void);
const char* tessera_cuda_version(void); /* "13.0", the runtime linked in; "" without CUDA */

/* tessera/ops/norm.h */
TesseraStatus tessera_rms_norm(const DLTensor* x, const DLTensor* weight, const DLTensor* out,
                               const DLTensor* residual,     /* optional; read and written */
                               const DLTensor* static_scale, /* optional */
                               const DLTensor* token_scale,  /* optional; written */
                               float eps, int32_t out_format /* TesseraDType */,
                               const TesseraContext* ctx);
TesseraStatus tessera_layer_norm(const DLTensor* x, const DLTensor* weight,
                                 const DLTensor* bias, /* optional */
                                 const DLTensor* out,
                                 const DLTensor* residual,     /* optional; read and written */
                                 const DLTensor* static_scale, /* optional */
                                 const DLTensor* token_scale,  /* optional; written */
                                 float eps, int32_t out_format /* TesseraDType */,
                                 const TesseraContext* ctx);

/* tessera/ops/rope.h: q and k are rotated in place. */
TesseraStatus tessera_rope(const DLTensor* q, const DLTensor* k, /* k optional */
                           const DLTensor* positions, const DLTensor* table,
                           int32_t style /* TesseraRopeStyle */, const TesseraContext* ctx);

/* Names as in a model's config.json; kind says which of them are read. */
typedef struct TesseraRopeScaling {
  uint64_t struct_size;
  int32_t kind; /* a TesseraRopeScalingKind */
  double factor;
  double low_freq_factor;
  double high_freq_factor;
  int64_t original_max_positions;
  double beta_fast;
  double beta_slow;
  double attention_factor; /* 0: 0.1 ln(factor) + 1 */
} TesseraRopeScaling;

/* Fills a float32 CPU tensor [num_positions, rotary_dim]. scaling NULL: none. */
TesseraStatus tessera_make_rope_table(const DLTensor* table, double theta,
                                      const TesseraRopeScaling* scaling);

/* tessera/ops/activation.h: out = f(x) * up, or f(x) where up is NULL. */
TesseraStatus tessera_activation(const DLTensor* x, const DLTensor* up, /* up optional */
                                 const DLTensor* out, int32_t kind /* TesseraActivation */,
                                 const TesseraContext* ctx);

/* tessera/ops/softmax.h: a mask of bool counts as uint8. */
TesseraStatus tessera_softmax(const DLTensor* x, const DLTensor* mask, /* mask optional */
                              const DLTensor* out, float scale, const TesseraContext* ctx);

/* tessera/ops/embedding.h */
TesseraStatus tessera_embedding(const DLTensor* table, const DLTensor* ids, const DLTensor* out,
                                const TesseraContext* ctx);

/* tessera/ops/copy.h: any strides on either side. */
TesseraStatus tessera_copy(const DLTensor* x, const DLTensor* out, const TesseraContext* ctx);

/* tessera/ops/quantize.h: the shape of scale says which elements share one. */
TesseraStatus tessera_quantize(const DLTensor* x, const DLTensor* out, const DLTensor* scale,
                               const DLTensor* zero_point, /* optional */
                               int32_t mode /* TesseraScaleMode */,
                               int32_t out_format /* TesseraDType */, const TesseraContext* ctx);
TesseraStatus tessera_dequantize(const DLTensor* x, const DLTensor* scale,
                                 const DLTensor* zero_point, /* optional */
                                 const DLTensor* out, int32_t x_format /* TesseraDType */,
                                 const TesseraContext* ctx);

/* tessera/ops/reduce.h: over the last axis. */
TesseraStatus tessera_reduce(const DLTensor* x, const DLTensor* out,
                             int32_t kind /* TesseraReduction */, const TesseraContext* ctx);
TesseraStatus tessera_argmax(const DLTensor* x, const DLTensor* out, const TesseraContext* ctx);

/* tessera/ops/gemm.h: out = a . b^T and what the other arguments fuse behind it. */
TesseraStatus tessera_gemm(const DLTensor* a, const DLTensor* b, const DLTensor* out,
                           const DLTensor* bias,      /* optional */
                           const DLTensor* residual,  /* optional; may be out */
                           const DLTensor* b_scale,   /* optional */
                           const DLTensor* out_scale, /* optional */
                           int32_t activation,        /* TesseraActivation */
                           int32_t flags,             /* of TesseraGemmFlags */
                           int32_t out_format /* TesseraDType */, const TesseraContext* ctx);
/* This and the two 2:4 steps below cannot be asked with check_only. */
TesseraStatus tessera_pack_gate_up(const DLTensor* gate, const DLTensor* up, const DLTensor* out,
                                   const TesseraContext* ctx);

/* tessera/ops/sparse.h: pruning and its inverse are on the CPU, the product on any device. */
TesseraStatus tessera_prune_2_4(const DLTensor* w, const DLTensor* out_values,
                                const DLTensor* out_meta, const TesseraContext* ctx);
TesseraStatus tessera_expand_2_4(const DLTensor* values, const DLTensor* meta, const DLTensor* out,
                                 const TesseraContext* ctx);
TesseraStatus tessera_gemm_2_4(const DLTensor* a, const DLTensor* values, const DLTensor* meta,
                               const DLTensor* out, const TesseraContext* ctx);

/* For bindings whose calls into C are dear: an operation on a framework's objects in one crossing.
 * How to read the objects, which come in a sequence: */
typedef struct TesseraObjects {
  uint64_t struct_size;                          /* set by the caller */
  intptr_t (*size)(void* sequence);              /* PyTuple_Size */
  void* (*item)(void* sequence, intptr_t index); /* borrowed: PyTuple_GetItem */
  const void* absent;                            /* what stands for no tensor: None */
  /* dltensor_from_py_object_no_sync and current_work_stream of a DLPackExchangeAPI. Without the
   * first, objects are capsules "dltensor"; without the second, the default stream is used. */
  int (*tensor_from_object)(void* object, DLTensor* tensor);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
  void* (*capsule_pointer)(void* capsule, const char* name); /* PyCapsule_GetPointer */
  void (*clear_error)(void); /* called if one of the above failed: PyErr_Clear */
  /* Called around the operation itself, so that other threads may run: PyEval_SaveThread and
   * PyEval_RestoreThread. */
  void* (*unlock)(void);
  void (*lock)(void* state);
} TesseraObjects;

/* The function tessera_<op>, of those taking a TesseraContext, as
 *   int (*)(const TesseraObjects* how, void* sequence, const TesseraContext* ctx, scalars...)
 * with the scalars of tessera_<op> in its order; NULL if there is none. An operation with a struct
 * of arguments takes that in their place: its tensors are those of the sequence, in the order of
 * its fields. It keeps no object. Tensors beyond the sequence's end are absent, and ctx NULL means
 * the framework's current stream. Returns a TesseraStatus, or -1 if nothing was run because an
 * object could not be read. `op` NULL gives NULL; `how` or `sequence` NULL is refused. */
typedef void (*TesseraFunction)(void);
TesseraFunction tessera_on_objects(const char* op);

/* 0 where there is no GPU, no driver, or the library was built without CUDA. */
int tessera_num_cuda_devices(void);

typedef struct TesseraDeviceInfo {
  uint64_t struct_size;       /* set by the caller */
  char name[128];             /* cut to fit */
  int32_t compute_capability; /* 10 * major + minor */
  int32_t num_sms;
  int64_t memory_bytes;
  int64_t l2_bytes;
  int64_t shared_bytes_per_block;
  int32_t sm_clock_khz;
} TesseraDeviceInfo;

TesseraStatus tessera_device_info(int index, TesseraDeviceInfo* info);

/* Waits for all work on a stream of CUDA device `index`, and reports what went wrong in it. */
TesseraStatus tessera_synchronize(int index, void* stream);

/* The rows: one per compiled kernel, in order of preference within an operation. */
typedef struct TesseraRowInfo {
  uint64_t struct_size; /* set by the caller */
  const char* family;   /* "elementwise"; the strings live as long as the library */
  const char* op;       /* "rms_norm" */
  const char* name;     /* "rms_norm_sm90_bf16_e4m3" */
  const char* library;  /* "portable" or "sm90" */
  TesseraDType in;
  TesseraDType out;
  int32_t is_batch_invariant;
} TesseraRowInfo;

int64_t tessera_num_rows(void);
TesseraStatus tessera_row_info(int64_t index, TesseraRowInfo* info);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
