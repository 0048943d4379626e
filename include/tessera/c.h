/* The C ABI: every operation over DLPack tensors, with status codes and no exceptions. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <dlpack/dlpack.h>
#include <stdint.h>

#include "tessera/c_attention.h"
#include "tessera/c_ops.h"
#include "tessera/c_types.h"
#include "tessera/c_weights.h"

/* Conventions
 *   Tensors     `const DLTensor*`, borrowed for the call. A tensor marked optional may be NULL; the
 *               rest may not. Shapes, dtypes and meaning are those of the C++ header named at each
 *               function. kDLCPU and kDLCUDAHost count as CPU memory, kDLCUDA and kDLCUDAManaged
 *               as GPU memory; all tensors of a call are on one device. Data that is not aligned to
 *               its element size, or strides that reach beyond 2^60 elements, are refused.
 *   Formats     A quantising function takes a TesseraDType beside the quantised tensor, because
 *               many frameworks have no FP8 or 4-bit type. TESSERA_DTYPE_AUTO takes the tensor's
 *               own dtype; e4m3 and e5m2 may be stored as int8 or uint8; i4 is stored as int8 or
 *               uint8 [rows, cols / 2], the element with the even index in the low nibble.
 *   Errors      TESSERA_OK, or another status, for which tessera_last_error has the message.
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

/* The message of this thread's last call that did not return TESSERA_OK; never NULL, and valid
 * until the thread's next such call. */
const char* tessera_last_error(void);
/* Where in the library's source that error was raised, "gemm.cpp:31"; "" if that is not known. */
const char* tessera_last_error_where(void);

int tessera_abi_version(void);     /* TESSERA_ABI_VERSION of the library that was loaded */
const char* tessera_version(void); /* "0.1.0" */
/* The commit the library was built from, with "-dirty" appended if tracked files had changed;
 * "unknown" if the build could not tell. */
const char* tessera_commit(void);
const char* tessera_cuda_version(void); /* "13.0", the runtime linked in; "" without CUDA */

/* tessera/ops/rope.h: fills a float32 CPU tensor [num_positions, rotary_dim]; scaling may be NULL.
 */
TesseraStatus tessera_make_rope_table(const DLTensor* table, double theta,
                                      const TesseraRopeScaling* scaling);

/* tessera/ops/gemm.h: stores in *packing the TesseraPacking of b that the best row for these
 * arguments takes. b is in TESSERA_PACKING_ROWS. */
TesseraStatus tessera_preferred_packing(const TesseraGemmArgs* args, int32_t* packing,
                                        const TesseraContext* ctx);

/* How to read the tensor objects of a framework. For language bindings where every call into C is
 * expensive: tessera_on_objects reads all objects of an operation and runs it in one call. */
typedef struct TesseraObjects {
  uint64_t struct_size;                          /* set by the caller */
  intptr_t (*size)(void* sequence);              /* PyTuple_Size */
  void* (*item)(void* sequence, intptr_t index); /* borrowed: PyTuple_GetItem */
  const void* absent;                            /* the object that means no tensor: None */
  /* dltensor_from_py_object_no_sync and current_work_stream of a DLPackExchangeAPI. Without the
   * first, objects are capsules "dltensor"; without the second, the default stream is used. */
  int (*tensor_from_object)(void* object, DLTensor* tensor);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
  void* (*capsule_pointer)(void* capsule, const char* name); /* PyCapsule_GetPointer */
  void (*clear_error)(void); /* called if one of the above failed: PyErr_Clear */
  /* Called before and after the operation itself, so that other threads can run meanwhile:
   * PyEval_SaveThread and PyEval_RestoreThread. */
  void* (*unlock)(void);
  void (*lock)(void* state);
} TesseraObjects;

/* The operation tessera_<op> on objects; NULL if no function of that name takes a TesseraContext.
 * Cast the result to int (*)(const TesseraObjects* how, void* sequence, const TesseraContext* ctx,
 * scalars...) where `sequence` holds the tensors and the scalars are those of tessera_<op>, in its
 * order. If tessera_<op> takes a struct, pass a pointer to it in place of the scalars: its tensors
 * are read from the sequence, in the order of the fields. Tensors missing at the end of the
 * sequence are absent; ctx NULL means the framework's current stream. No object is kept. Returns a
 * TesseraStatus, or -1 if an object could not be read and nothing was run. */
typedef void (*TesseraFunction)(void);
TesseraFunction tessera_on_objects(const char* op);

/* 0 if there is no GPU or no driver, or the library was built without CUDA. */
int tessera_num_cuda_devices(void);

TesseraStatus tessera_device_info(int index, TesseraDeviceInfo* info);

/* Waits for all work on a stream of CUDA device `index`, and reports an error that occurred in it.
 */
TesseraStatus tessera_synchronize(int index, void* stream);

/* The rows: one per compiled kernel, in order of preference within an operation. */
int64_t tessera_num_rows(void);
TesseraStatus tessera_row_info(int64_t index, TesseraRowInfo* info);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
