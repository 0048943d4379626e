/* Attention and the KV cache in the C ABI; tessera/c.h, which includes it, has the conventions. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <dlpack/dlpack.h>
#include <stdint.h>

#include "tessera/c_types.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

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
  int64_t window;       /* 0: unbounded */
  int64_t longest;      /* of seq_lens; 0: not known */
  float scale;          /* 0: 1 / sqrt(head_dim) */
  float softcap;        /* 0: none */
  int32_t k_format;     /* TesseraDType of k_pages: e4m3, e5m2 and i4 may be given as bytes */
  int32_t v_format;     /* of v_pages */
  int32_t shares_pages; /* not 0: sequences have pages in common */
  int32_t reserved;     /* 0 */
} TesseraDecodeAttentionArgs;
TesseraStatus tessera_attention_decode(const TesseraDecodeAttentionArgs* args,
                                       const TesseraContext* ctx);

/* The same of MergeAttentionArgs. */
typedef struct TesseraMergeAttentionArgs {
  uint64_t struct_size;
  const DLTensor* parts;
  const DLTensor* part_lses;
  const DLTensor* out; /* written */
  const DLTensor* lse; /* written; optional */
} TesseraMergeAttentionArgs;
TesseraStatus tessera_attention_merge(const TesseraMergeAttentionArgs* args,
                                      const TesseraContext* ctx);

/* The same of CascadeAttentionArgs: its `own` as in TesseraDecodeAttentionArgs, without a window
 * and alibi_slopes, then the keys all sequences begin with, then scratch memory. Messages have the
 * names of C++: own.q is q, and page_table beside piece_lens is shared_page_table. */
typedef struct TesseraCascadeAttentionArgs {
  uint64_t struct_size;
  const DLTensor* q;
  const DLTensor* k_pages;
  const DLTensor* v_pages;
  const DLTensor* out; /* written; may be q */
  const DLTensor* seq_lens;
  const DLTensor* page_table; /* this and the tensors up to num_keys are optional */
  const DLTensor* k_scales;
  const DLTensor* v_scales;
  const DLTensor* k_tail;
  const DLTensor* tails;
  const DLTensor* lse; /* written */
  const DLTensor* sinks;
  const DLTensor* tree;
  const DLTensor* blocks;
  const DLTensor* num_blocks;
  const DLTensor* keys;
  const DLTensor* num_keys;
  const DLTensor* shared_k_pages;
  const DLTensor* shared_v_pages;
  const DLTensor* shared_page_table; /* optional */
  const DLTensor* piece_lens;
  const DLTensor* parts;     /* written, with nothing of use afterwards */
  const DLTensor* part_lses; /* the same */
  int64_t longest;           /* of seq_lens; 0: not known */
  float scale;               /* 0: 1 / sqrt(head_dim) */
  float softcap;             /* 0: none */
  int32_t k_format;          /* as in TesseraDecodeAttentionArgs */
  int32_t v_format;
} TesseraCascadeAttentionArgs;
TesseraStatus tessera_attention_cascade(const TesseraCascadeAttentionArgs* args,
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

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
