/* The C ABI: every operation over DLPack tensors, with status codes and no exceptions. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <dlpack/dlpack.h>
#include <stdint.h>

/* Conventions
 *   Tensors     `const DLTensor*`, borrowed for the call. A tensor marked optional may be NULL; the
 *               rest may not. Shapes, dtypes and meaning are those of the C++ header named at each
 *               function. Memory of kDLCPU and kDLCUDAHost is taken as the CPU's, of kDLCUDA and
 *               kDLCUDAManaged as the GPU's; all tensors of a call are on one device.
 *   Formats     A quantising function takes a TesseraDType beside the quantised tensor, because
 * many frameworks have no FP8 or 4-bit type. TESSERA_DTYPE_AUTO takes the tensor's own dtype; e4m3
 * and e5m2 may be stored as int8 or uint8; i4 is stored as int8 or uint8 [rows, cols / 2], the
 * element with the even index in the low nibble. Errors      TESSERA_OK, or a status whose message
 * tessera_last_error gives. Nothing is thrown. Streams     GPU work is ordered on
 * TesseraContext.stream and not waited for.
 */

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Raised by one whenever a function or struct of this header changes incompatibly. */
enum { TESSERA_ABI_VERSION = 1 };

typedef enum TesseraStatus {
  TESSERA_OK = 0,
  TESSERA_ERROR = 1,          /* refused or failed: the message shows the values and the remedy */
  TESSERA_OUT_OF_MEMORY = 2,  /* host memory */
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

/* Never NULL. The message of this thread's last call that did not return TESSERA_OK; valid until
 * the thread's next such call. */
const char* tessera_last_error(void);

int tessera_abi_version(void);          /* TESSERA_ABI_VERSION of the library that was loaded */
const char* tessera_version(void);      /* "0.1.0" */
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

/* Which of the two bounds of TesseraAttentionArgs hold. */
typedef enum TesseraAttentionBounds {
  TESSERA_ATTENTION_LEFT = 1,
  TESSERA_ATTENTION_RIGHT = 2 /* with right 0: causal */
} TesseraAttentionBounds;

/* tessera/ops/attention.h, AttentionArgs: its fields by their names. The caller sets struct_size =
 * sizeof(TesseraAttentionArgs) and the rest to zeros but for what is wanted: zeros are defaults,
 * which let every query see every key. */
typedef struct TesseraAttentionArgs {
  uint64_t struct_size;
  const DLTensor* q;
  const DLTensor* k;
  const DLTensor* v;
  const DLTensor* out; /* written; may be q */
  const DLTensor* lse; /* written; this and all tensors below are optional */
  const DLTensor* intervals;
  const DLTensor* sinks;
  const DLTensor* alibi_slopes;
  const DLTensor* q_starts;
  const DLTensor* kv_starts;
  const DLTensor* kv_lens;
  const DLTensor* k_page_table;
  const DLTensor* v_page_table;
  const DLTensor* q_scale;
  const DLTensor* k_scale;
  const DLTensor* v_scale;
  int64_t left;  /* keys before a query's own that it sees; read with TESSERA_ATTENTION_LEFT */
  int64_t right; /* keys behind; read with TESSERA_ATTENTION_RIGHT */
  uint64_t dropout_seed;
  float dropout_rate;
  float scale;           /* 0: 1 / sqrt(d_k) */
  float softcap;         /* 0: none */
  int32_t bounds;        /* of TesseraAttentionBounds */
  int32_t format;        /* TesseraDType of q, k and v */
  int32_t sums_in_float; /* 1: e4m3 is summed in float from block to block */
  int32_t reserved;      /* 0 */
} TesseraAttentionArgs;
TesseraStatus tessera_attention_prefill(const TesseraAttentionArgs* args,
                                        const TesseraContext* ctx);

/* tessera/ops/attention.h, DecodeAttentionArgs with the tensors of its PagedKv: fields by their
 * names, struct_size and zeros as above. */
typedef struct TesseraDecodeAttentionArgs {
  uint64_t struct_size;
  const DLTensor* q;
  const DLTensor* k_pages;
  const DLTensor* v_pages;
  const DLTensor* out; /* written; may be q */
  const DLTensor* seq_lens;
  const DLTensor* page_table; /* this and all tensors below are optional */
  const DLTensor* k_scales;
  const DLTensor* v_scales;
  const DLTensor* k_tail;
  const DLTensor* tails;
  const DLTensor* lse; /* written */
  const DLTensor* sinks;
  const DLTensor* alibi_slopes;
  const DLTensor* tree;
  const DLTensor* blocks;
  const DLTensor* num_blocks;
  const DLTensor* keys;
  const DLTensor* num_keys;
  int64_t window;   /* 0: unbounded */
  int64_t longest;  /* of seq_lens; 0: not known */
  float scale;      /* 0: 1 / sqrt(head_dim) */
  float softcap;    /* 0: none */
  int32_t k_format; /* TesseraDType of k_pages: e4m3, e5m2 and i4 may be given as bytes */
  int32_t v_format; /* of v_pages */
} TesseraDecodeAttentionArgs;
TesseraStatus tessera_attention_decode(const TesseraDecodeAttentionArgs* args,
                                       const TesseraContext* ctx);

/* tessera/ops/kv_cache.h, KvAppendArgs with the parts of its rope: fields by their names,
 * struct_size and zeros as above. */
typedef struct TesseraKvAppendArgs {
  uint64_t struct_size;
  const DLTensor* k; /* written where keys are rotated */
  const DLTensor* v;
  const DLTensor* slots;
  const DLTensor* k_pages;  /* written */
  const DLTensor* v_pages;  /* written */
  const DLTensor* k_scales; /* written, but for FP8; this and all tensors below are optional */
  const DLTensor* v_scales; /* written, but for FP8 */
  const DLTensor* k_tail;   /* written */
  const DLTensor* tail_slots;
  const DLTensor* rope_q; /* written; with the next two, or none of the three */
  const DLTensor* rope_positions;
  const DLTensor* rope_table;
  int32_t rope_style; /* TesseraRopeStyle */
  int32_t k_format;   /* TesseraDType of k_pages: e4m3, e5m2 and i4 may be given as bytes */
  int32_t v_format;   /* of v_pages */
  int32_t reserved;   /* 0 */
} TesseraKvAppendArgs;
TesseraStatus tessera_kv_append(const TesseraKvAppendArgs* args, const TesseraContext* ctx);

/* The same of KvGatherArgs with the tensors of its PagedKv. */
typedef struct TesseraKvGatherArgs {
  uint64_t struct_size;
  const DLTensor* k_pages;
  const DLTensor* v_pages;
  const DLTensor* seq_lens;
  const DLTensor* starts;
  const DLTensor* k;          /* written */
  const DLTensor* v;          /* written */
  const DLTensor* page_table; /* this and all tensors below are optional */
  const DLTensor* k_scales;
  const DLTensor* v_scales;
  const DLTensor* k_tail;
  const DLTensor* tails;
  int32_t k_format; /* as in TesseraKvAppendArgs */
  int32_t v_format;
} TesseraKvGatherArgs;
TesseraStatus tessera_kv_gather(const TesseraKvGatherArgs* args, const TesseraContext* ctx);

/* k_pages and v_pages are written, and the scales that are given with them. */
TesseraStatus tessera_kv_copy_pages(const DLTensor* k_pages, const DLTensor* v_pages,
                                    const DLTensor* sources, const DLTensor* targets,
                                    const DLTensor* k_scales, /* optional */
                                    const DLTensor* v_scales, /* optional */
                                    int32_t k_format, int32_t v_format /* as above */,
                                    const TesseraContext* ctx);

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
 * object could not be read. */
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
