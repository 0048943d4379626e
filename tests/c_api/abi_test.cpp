// The C ABI as version 1 froze it: sizes, offsets, enum values and function types. A line that no
// longer compiles is an incompatible change; fields are added at the end of a struct, never moved.
// SPDX-License-Identifier: MIT
#include <cstddef>
#include <type_traits>

#include "tessera/c.h"

namespace {

static_assert(TESSERA_ABI_VERSION == 1);

static_assert(sizeof(TesseraContext) == 32);
static_assert(offsetof(TesseraContext, struct_size) == 0);
static_assert(offsetof(TesseraContext, stream) == 8);
static_assert(offsetof(TesseraContext, row) == 16);
static_assert(offsetof(TesseraContext, batch_invariant) == 24);
static_assert(offsetof(TesseraContext, check_only) == 28);

static_assert(sizeof(TesseraAttentionArgs) == 192);
static_assert(offsetof(TesseraAttentionArgs, struct_size) == 0);
static_assert(offsetof(TesseraAttentionArgs, q) == 8);
static_assert(offsetof(TesseraAttentionArgs, k) == 16);
static_assert(offsetof(TesseraAttentionArgs, v) == 24);
static_assert(offsetof(TesseraAttentionArgs, out) == 32);
static_assert(offsetof(TesseraAttentionArgs, lse) == 40);
static_assert(offsetof(TesseraAttentionArgs, intervals) == 48);
static_assert(offsetof(TesseraAttentionArgs, sinks) == 56);
static_assert(offsetof(TesseraAttentionArgs, alibi_slopes) == 64);
static_assert(offsetof(TesseraAttentionArgs, q_starts) == 72);
static_assert(offsetof(TesseraAttentionArgs, kv_starts) == 80);
static_assert(offsetof(TesseraAttentionArgs, kv_lens) == 88);
static_assert(offsetof(TesseraAttentionArgs, k_page_table) == 96);
static_assert(offsetof(TesseraAttentionArgs, v_page_table) == 104);
static_assert(offsetof(TesseraAttentionArgs, q_scale) == 112);
static_assert(offsetof(TesseraAttentionArgs, k_scale) == 120);
static_assert(offsetof(TesseraAttentionArgs, v_scale) == 128);
static_assert(offsetof(TesseraAttentionArgs, left) == 136);
static_assert(offsetof(TesseraAttentionArgs, right) == 144);
static_assert(offsetof(TesseraAttentionArgs, dropout_seed) == 152);
static_assert(offsetof(TesseraAttentionArgs, dropout_rate) == 160);
static_assert(offsetof(TesseraAttentionArgs, scale) == 164);
static_assert(offsetof(TesseraAttentionArgs, softcap) == 168);
static_assert(offsetof(TesseraAttentionArgs, bounds) == 172);
static_assert(offsetof(TesseraAttentionArgs, format) == 176);
static_assert(offsetof(TesseraAttentionArgs, sums_in_float) == 180);
static_assert(offsetof(TesseraAttentionArgs, reserved) == 184);

static_assert(sizeof(TesseraDecodeAttentionArgs) == 192);
static_assert(offsetof(TesseraDecodeAttentionArgs, struct_size) == 0);
static_assert(offsetof(TesseraDecodeAttentionArgs, q) == 8);
static_assert(offsetof(TesseraDecodeAttentionArgs, k_pages) == 16);
static_assert(offsetof(TesseraDecodeAttentionArgs, v_pages) == 24);
static_assert(offsetof(TesseraDecodeAttentionArgs, out) == 32);
static_assert(offsetof(TesseraDecodeAttentionArgs, seq_lens) == 40);
static_assert(offsetof(TesseraDecodeAttentionArgs, page_table) == 48);
static_assert(offsetof(TesseraDecodeAttentionArgs, k_scales) == 56);
static_assert(offsetof(TesseraDecodeAttentionArgs, v_scales) == 64);
static_assert(offsetof(TesseraDecodeAttentionArgs, k_tail) == 72);
static_assert(offsetof(TesseraDecodeAttentionArgs, tails) == 80);
static_assert(offsetof(TesseraDecodeAttentionArgs, lse) == 88);
static_assert(offsetof(TesseraDecodeAttentionArgs, sinks) == 96);
static_assert(offsetof(TesseraDecodeAttentionArgs, alibi_slopes) == 104);
static_assert(offsetof(TesseraDecodeAttentionArgs, tree) == 112);
static_assert(offsetof(TesseraDecodeAttentionArgs, blocks) == 120);
static_assert(offsetof(TesseraDecodeAttentionArgs, num_blocks) == 128);
static_assert(offsetof(TesseraDecodeAttentionArgs, keys) == 136);
static_assert(offsetof(TesseraDecodeAttentionArgs, num_keys) == 144);
static_assert(offsetof(TesseraDecodeAttentionArgs, window) == 152);
static_assert(offsetof(TesseraDecodeAttentionArgs, longest) == 160);
static_assert(offsetof(TesseraDecodeAttentionArgs, scale) == 168);
static_assert(offsetof(TesseraDecodeAttentionArgs, softcap) == 172);
static_assert(offsetof(TesseraDecodeAttentionArgs, k_format) == 176);
static_assert(offsetof(TesseraDecodeAttentionArgs, v_format) == 180);
static_assert(offsetof(TesseraDecodeAttentionArgs, shares_pages) == 184);
static_assert(offsetof(TesseraDecodeAttentionArgs, reserved) == 188);

static_assert(sizeof(TesseraMergeAttentionArgs) == 40);
static_assert(offsetof(TesseraMergeAttentionArgs, struct_size) == 0);
static_assert(offsetof(TesseraMergeAttentionArgs, parts) == 8);
static_assert(offsetof(TesseraMergeAttentionArgs, part_lses) == 16);
static_assert(offsetof(TesseraMergeAttentionArgs, out) == 24);
static_assert(offsetof(TesseraMergeAttentionArgs, lse) == 32);

static_assert(sizeof(TesseraCascadeAttentionArgs) == 216);
static_assert(offsetof(TesseraCascadeAttentionArgs, struct_size) == 0);
static_assert(offsetof(TesseraCascadeAttentionArgs, q) == 8);
static_assert(offsetof(TesseraCascadeAttentionArgs, k_pages) == 16);
static_assert(offsetof(TesseraCascadeAttentionArgs, v_pages) == 24);
static_assert(offsetof(TesseraCascadeAttentionArgs, out) == 32);
static_assert(offsetof(TesseraCascadeAttentionArgs, seq_lens) == 40);
static_assert(offsetof(TesseraCascadeAttentionArgs, page_table) == 48);
static_assert(offsetof(TesseraCascadeAttentionArgs, k_scales) == 56);
static_assert(offsetof(TesseraCascadeAttentionArgs, v_scales) == 64);
static_assert(offsetof(TesseraCascadeAttentionArgs, k_tail) == 72);
static_assert(offsetof(TesseraCascadeAttentionArgs, tails) == 80);
static_assert(offsetof(TesseraCascadeAttentionArgs, lse) == 88);
static_assert(offsetof(TesseraCascadeAttentionArgs, sinks) == 96);
static_assert(offsetof(TesseraCascadeAttentionArgs, tree) == 104);
static_assert(offsetof(TesseraCascadeAttentionArgs, blocks) == 112);
static_assert(offsetof(TesseraCascadeAttentionArgs, num_blocks) == 120);
static_assert(offsetof(TesseraCascadeAttentionArgs, keys) == 128);
static_assert(offsetof(TesseraCascadeAttentionArgs, num_keys) == 136);
static_assert(offsetof(TesseraCascadeAttentionArgs, shared_k_pages) == 144);
static_assert(offsetof(TesseraCascadeAttentionArgs, shared_v_pages) == 152);
static_assert(offsetof(TesseraCascadeAttentionArgs, shared_page_table) == 160);
static_assert(offsetof(TesseraCascadeAttentionArgs, piece_lens) == 168);
static_assert(offsetof(TesseraCascadeAttentionArgs, parts) == 176);
static_assert(offsetof(TesseraCascadeAttentionArgs, part_lses) == 184);
static_assert(offsetof(TesseraCascadeAttentionArgs, longest) == 192);
static_assert(offsetof(TesseraCascadeAttentionArgs, scale) == 200);
static_assert(offsetof(TesseraCascadeAttentionArgs, softcap) == 204);
static_assert(offsetof(TesseraCascadeAttentionArgs, k_format) == 208);
static_assert(offsetof(TesseraCascadeAttentionArgs, v_format) == 212);

static_assert(sizeof(TesseraGemmArgs) == 120);
static_assert(offsetof(TesseraGemmArgs, struct_size) == 0);
static_assert(offsetof(TesseraGemmArgs, a) == 8);
static_assert(offsetof(TesseraGemmArgs, b) == 16);
static_assert(offsetof(TesseraGemmArgs, out) == 24);
static_assert(offsetof(TesseraGemmArgs, bias) == 32);
static_assert(offsetof(TesseraGemmArgs, residual) == 40);
static_assert(offsetof(TesseraGemmArgs, b_scale) == 48);
static_assert(offsetof(TesseraGemmArgs, out_scale) == 56);
static_assert(offsetof(TesseraGemmArgs, b_zero_point) == 64);
static_assert(offsetof(TesseraGemmArgs, b_order) == 72);
static_assert(offsetof(TesseraGemmArgs, b_rows_per_scale) == 80);
static_assert(offsetof(TesseraGemmArgs, b_group) == 88);
static_assert(offsetof(TesseraGemmArgs, activation) == 96);
static_assert(offsetof(TesseraGemmArgs, flags) == 100);
static_assert(offsetof(TesseraGemmArgs, out_format) == 104);
static_assert(offsetof(TesseraGemmArgs, b_format) == 108);
static_assert(offsetof(TesseraGemmArgs, b_packing) == 112);
static_assert(offsetof(TesseraGemmArgs, reserved) == 116);

static_assert(sizeof(TesseraPackWeightArgs) == 80);
static_assert(offsetof(TesseraPackWeightArgs, struct_size) == 0);
static_assert(offsetof(TesseraPackWeightArgs, values) == 8);
static_assert(offsetof(TesseraPackWeightArgs, scale) == 16);
static_assert(offsetof(TesseraPackWeightArgs, zero_point) == 24);
static_assert(offsetof(TesseraPackWeightArgs, out_values) == 32);
static_assert(offsetof(TesseraPackWeightArgs, out_scale) == 40);
static_assert(offsetof(TesseraPackWeightArgs, out_zero_point) == 48);
static_assert(offsetof(TesseraPackWeightArgs, group) == 56);
static_assert(offsetof(TesseraPackWeightArgs, format) == 64);
static_assert(offsetof(TesseraPackWeightArgs, packing) == 68);
static_assert(offsetof(TesseraPackWeightArgs, out_packing) == 72);
static_assert(offsetof(TesseraPackWeightArgs, reserved) == 76);

static_assert(sizeof(TesseraGemmCodesArgs) == 128);
static_assert(offsetof(TesseraGemmCodesArgs, struct_size) == 0);
static_assert(offsetof(TesseraGemmCodesArgs, a) == 8);
static_assert(offsetof(TesseraGemmCodesArgs, b) == 16);
static_assert(offsetof(TesseraGemmCodesArgs, out) == 24);
static_assert(offsetof(TesseraGemmCodesArgs, a_scale) == 32);
static_assert(offsetof(TesseraGemmCodesArgs, b_scale) == 40);
static_assert(offsetof(TesseraGemmCodesArgs, bias) == 48);
static_assert(offsetof(TesseraGemmCodesArgs, residual) == 56);
static_assert(offsetof(TesseraGemmCodesArgs, out_scale) == 64);
static_assert(offsetof(TesseraGemmCodesArgs, a_zero_point) == 72);
static_assert(offsetof(TesseraGemmCodesArgs, b_row_sums) == 80);
static_assert(offsetof(TesseraGemmCodesArgs, b_rows_per_scale) == 88);
static_assert(offsetof(TesseraGemmCodesArgs, b_group) == 96);
static_assert(offsetof(TesseraGemmCodesArgs, activation) == 104);
static_assert(offsetof(TesseraGemmCodesArgs, flags) == 108);
static_assert(offsetof(TesseraGemmCodesArgs, out_format) == 112);
static_assert(offsetof(TesseraGemmCodesArgs, a_format) == 116);
static_assert(offsetof(TesseraGemmCodesArgs, b_format) == 120);
static_assert(offsetof(TesseraGemmCodesArgs, sums_in_float) == 124);

static_assert(sizeof(TesseraGemmTableArgs) == 104);
static_assert(offsetof(TesseraGemmTableArgs, struct_size) == 0);
static_assert(offsetof(TesseraGemmTableArgs, a) == 8);
static_assert(offsetof(TesseraGemmTableArgs, b) == 16);
static_assert(offsetof(TesseraGemmTableArgs, out) == 24);
static_assert(offsetof(TesseraGemmTableArgs, b_scale) == 32);
static_assert(offsetof(TesseraGemmTableArgs, b_table) == 40);
static_assert(offsetof(TesseraGemmTableArgs, bias) == 48);
static_assert(offsetof(TesseraGemmTableArgs, residual) == 56);
static_assert(offsetof(TesseraGemmTableArgs, out_scale) == 64);
static_assert(offsetof(TesseraGemmTableArgs, b_rows_per_scale) == 72);
static_assert(offsetof(TesseraGemmTableArgs, b_group) == 80);
static_assert(offsetof(TesseraGemmTableArgs, activation) == 88);
static_assert(offsetof(TesseraGemmTableArgs, flags) == 92);
static_assert(offsetof(TesseraGemmTableArgs, out_format) == 96);
static_assert(offsetof(TesseraGemmTableArgs, b_format) == 100);

static_assert(sizeof(TesseraKvAppendArgs) == 120);
static_assert(offsetof(TesseraKvAppendArgs, struct_size) == 0);
static_assert(offsetof(TesseraKvAppendArgs, k) == 8);
static_assert(offsetof(TesseraKvAppendArgs, v) == 16);
static_assert(offsetof(TesseraKvAppendArgs, slots) == 24);
static_assert(offsetof(TesseraKvAppendArgs, k_pages) == 32);
static_assert(offsetof(TesseraKvAppendArgs, v_pages) == 40);
static_assert(offsetof(TesseraKvAppendArgs, k_scales) == 48);
static_assert(offsetof(TesseraKvAppendArgs, v_scales) == 56);
static_assert(offsetof(TesseraKvAppendArgs, k_tail) == 64);
static_assert(offsetof(TesseraKvAppendArgs, tail_slots) == 72);
static_assert(offsetof(TesseraKvAppendArgs, rope_q) == 80);
static_assert(offsetof(TesseraKvAppendArgs, rope_positions) == 88);
static_assert(offsetof(TesseraKvAppendArgs, rope_table) == 96);
static_assert(offsetof(TesseraKvAppendArgs, rope_style) == 104);
static_assert(offsetof(TesseraKvAppendArgs, k_format) == 108);
static_assert(offsetof(TesseraKvAppendArgs, v_format) == 112);
static_assert(offsetof(TesseraKvAppendArgs, reserved) == 116);

static_assert(sizeof(TesseraKvGatherArgs) == 104);
static_assert(offsetof(TesseraKvGatherArgs, struct_size) == 0);
static_assert(offsetof(TesseraKvGatherArgs, k_pages) == 8);
static_assert(offsetof(TesseraKvGatherArgs, v_pages) == 16);
static_assert(offsetof(TesseraKvGatherArgs, seq_lens) == 24);
static_assert(offsetof(TesseraKvGatherArgs, starts) == 32);
static_assert(offsetof(TesseraKvGatherArgs, k) == 40);
static_assert(offsetof(TesseraKvGatherArgs, v) == 48);
static_assert(offsetof(TesseraKvGatherArgs, page_table) == 56);
static_assert(offsetof(TesseraKvGatherArgs, k_scales) == 64);
static_assert(offsetof(TesseraKvGatherArgs, v_scales) == 72);
static_assert(offsetof(TesseraKvGatherArgs, k_tail) == 80);
static_assert(offsetof(TesseraKvGatherArgs, tails) == 88);
static_assert(offsetof(TesseraKvGatherArgs, k_format) == 96);
static_assert(offsetof(TesseraKvGatherArgs, v_format) == 100);

static_assert(sizeof(TesseraRopeScaling) == 72);
static_assert(offsetof(TesseraRopeScaling, struct_size) == 0);
static_assert(offsetof(TesseraRopeScaling, kind) == 8);
static_assert(offsetof(TesseraRopeScaling, factor) == 16);
static_assert(offsetof(TesseraRopeScaling, low_freq_factor) == 24);
static_assert(offsetof(TesseraRopeScaling, high_freq_factor) == 32);
static_assert(offsetof(TesseraRopeScaling, original_max_positions) == 40);
static_assert(offsetof(TesseraRopeScaling, beta_fast) == 48);
static_assert(offsetof(TesseraRopeScaling, beta_slow) == 56);
static_assert(offsetof(TesseraRopeScaling, attention_factor) == 64);

static_assert(sizeof(TesseraObjects) == 80);
static_assert(offsetof(TesseraObjects, struct_size) == 0);
static_assert(offsetof(TesseraObjects, size) == 8);
static_assert(offsetof(TesseraObjects, item) == 16);
static_assert(offsetof(TesseraObjects, absent) == 24);
static_assert(offsetof(TesseraObjects, tensor_from_object) == 32);
static_assert(offsetof(TesseraObjects, current_stream) == 40);
static_assert(offsetof(TesseraObjects, capsule_pointer) == 48);
static_assert(offsetof(TesseraObjects, clear_error) == 56);
static_assert(offsetof(TesseraObjects, unlock) == 64);
static_assert(offsetof(TesseraObjects, lock) == 72);

static_assert(sizeof(TesseraDeviceInfo) == 176);
static_assert(offsetof(TesseraDeviceInfo, struct_size) == 0);
static_assert(offsetof(TesseraDeviceInfo, name) == 8);
static_assert(offsetof(TesseraDeviceInfo, compute_capability) == 136);
static_assert(offsetof(TesseraDeviceInfo, num_sms) == 140);
static_assert(offsetof(TesseraDeviceInfo, memory_bytes) == 144);
static_assert(offsetof(TesseraDeviceInfo, l2_bytes) == 152);
static_assert(offsetof(TesseraDeviceInfo, shared_bytes_per_block) == 160);
static_assert(offsetof(TesseraDeviceInfo, sm_clock_khz) == 168);

static_assert(sizeof(TesseraRowInfo) == 56);
static_assert(offsetof(TesseraRowInfo, struct_size) == 0);
static_assert(offsetof(TesseraRowInfo, family) == 8);
static_assert(offsetof(TesseraRowInfo, op) == 16);
static_assert(offsetof(TesseraRowInfo, name) == 24);
static_assert(offsetof(TesseraRowInfo, library) == 32);
static_assert(offsetof(TesseraRowInfo, in) == 40);
static_assert(offsetof(TesseraRowInfo, out) == 44);
static_assert(offsetof(TesseraRowInfo, is_batch_invariant) == 48);

static_assert(sizeof(TesseraSampleArgs) == 184);
static_assert(offsetof(TesseraSampleArgs, struct_size) == 0);
static_assert(offsetof(TesseraSampleArgs, logits) == 8);
static_assert(offsetof(TesseraSampleArgs, tokens) == 16);
static_assert(offsetof(TesseraSampleArgs, temperature) == 24);
static_assert(offsetof(TesseraSampleArgs, top_k) == 32);
static_assert(offsetof(TesseraSampleArgs, typical_p) == 40);
static_assert(offsetof(TesseraSampleArgs, top_p) == 48);
static_assert(offsetof(TesseraSampleArgs, min_p) == 56);
static_assert(offsetof(TesseraSampleArgs, seeds) == 64);
static_assert(offsetof(TesseraSampleArgs, sequences) == 72);
static_assert(offsetof(TesseraSampleArgs, positions) == 80);
static_assert(offsetof(TesseraSampleArgs, bias_starts) == 88);
static_assert(offsetof(TesseraSampleArgs, bias_tokens) == 96);
static_assert(offsetof(TesseraSampleArgs, bias_values) == 104);
static_assert(offsetof(TesseraSampleArgs, slots) == 112);
static_assert(offsetof(TesseraSampleArgs, seen_tokens) == 120);
static_assert(offsetof(TesseraSampleArgs, seen_counts) == 128);
static_assert(offsetof(TesseraSampleArgs, num_seen) == 136);
static_assert(offsetof(TesseraSampleArgs, repetition) == 144);
static_assert(offsetof(TesseraSampleArgs, presence) == 152);
static_assert(offsetof(TesseraSampleArgs, frequency) == 160);
static_assert(offsetof(TesseraSampleArgs, masks) == 168);
static_assert(offsetof(TesseraSampleArgs, mask_rows) == 176);

static_assert(TESSERA_OK == 0);
static_assert(TESSERA_ERROR == 1);
static_assert(TESSERA_OUT_OF_MEMORY == 2);
static_assert(TESSERA_INTERNAL_ERROR == 3);
static_assert(TESSERA_NOT_SUPPORTED == 4);

static_assert(TESSERA_DTYPE_AUTO == 0);
static_assert(TESSERA_F32 == 1);
static_assert(TESSERA_F16 == 2);
static_assert(TESSERA_BF16 == 3);
static_assert(TESSERA_E4M3 == 4);
static_assert(TESSERA_E5M2 == 5);
static_assert(TESSERA_I8 == 6);
static_assert(TESSERA_U8 == 7);
static_assert(TESSERA_I4 == 8);
static_assert(TESSERA_I32 == 9);
static_assert(TESSERA_I64 == 10);

static_assert(TESSERA_NO_ACTIVATION == -1);
static_assert(TESSERA_RELU == 0);
static_assert(TESSERA_SILU == 1);
static_assert(TESSERA_GELU == 2);
static_assert(TESSERA_GELU_TANH == 3);

static_assert(TESSERA_SUM == 0);
static_assert(TESSERA_MEAN == 1);
static_assert(TESSERA_MAX == 2);
static_assert(TESSERA_MIN == 3);
static_assert(TESSERA_ABSMAX == 4);

static_assert(TESSERA_ROPE_HALF_SPLIT == 0);
static_assert(TESSERA_ROPE_INTERLEAVED == 1);

static_assert(TESSERA_ROPE_SCALING_NONE == 0);
static_assert(TESSERA_ROPE_SCALING_LINEAR == 1);
static_assert(TESSERA_ROPE_SCALING_LLAMA3 == 2);
static_assert(TESSERA_ROPE_SCALING_YARN == 3);

static_assert(TESSERA_SCALE_DYNAMIC == 0);
static_assert(TESSERA_SCALE_FIXED == 1);

static_assert(TESSERA_GEMM_GATED == 1);
static_assert(TESSERA_GEMM_ALLOW_TF32 == 2);
static_assert(TESSERA_GEMM_STATIC_B == 4);

static_assert(TESSERA_ATTENTION_LEFT == 1);
static_assert(TESSERA_ATTENTION_RIGHT == 2);

static_assert(TESSERA_PACKING_ROWS == 0);
static_assert(TESSERA_PACKING_FRAGMENTS == 1);

using T = const DLTensor*;
using Ctx = const TesseraContext*;

template <auto kFunction, class Result, class... Args>
constexpr bool kIs = std::is_same_v<decltype(kFunction), Result (*)(Args...)>;

static_assert(kIs<tessera_attention_prefill, TesseraStatus, const TesseraAttentionArgs*, Ctx>);
static_assert(kIs<tessera_attention_decode, TesseraStatus, const TesseraDecodeAttentionArgs*, Ctx>);
static_assert(kIs<tessera_attention_merge, TesseraStatus, const TesseraMergeAttentionArgs*, Ctx>);
static_assert(
    kIs<tessera_attention_cascade, TesseraStatus, const TesseraCascadeAttentionArgs*, Ctx>);
static_assert(kIs<tessera_kv_append, TesseraStatus, const TesseraKvAppendArgs*, Ctx>);
static_assert(kIs<tessera_kv_gather, TesseraStatus, const TesseraKvGatherArgs*, Ctx>);
static_assert(kIs<tessera_kv_copy_pages, TesseraStatus, T, T, T, T, T, T, int32_t, int32_t, Ctx>);
static_assert(kIs<tessera_sample, TesseraStatus, const TesseraSampleArgs*, Ctx>);
static_assert(kIs<tessera_token_logprobs, TesseraStatus, T, T, T, T, T, Ctx>);
static_assert(kIs<tessera_last_error, const char*>);
static_assert(kIs<tessera_last_error_where, const char*>);
static_assert(kIs<tessera_abi_version, int>);
static_assert(kIs<tessera_version, const char*>);
static_assert(kIs<tessera_commit, const char*>);
static_assert(kIs<tessera_cuda_version, const char*>);
static_assert(kIs<tessera_rms_norm, TesseraStatus, T, T, T, T, T, T, float, int32_t, Ctx>);
static_assert(kIs<tessera_layer_norm, TesseraStatus, T, T, T, T, T, T, T, float, int32_t, Ctx>);
static_assert(kIs<tessera_rope, TesseraStatus, T, T, T, T, int32_t, Ctx>);
static_assert(kIs<tessera_make_rope_table, TesseraStatus, T, double, const TesseraRopeScaling*>);
static_assert(kIs<tessera_activation, TesseraStatus, T, T, T, int32_t, Ctx>);
static_assert(kIs<tessera_softmax, TesseraStatus, T, T, T, float, Ctx>);
static_assert(kIs<tessera_embedding, TesseraStatus, T, T, T, Ctx>);
static_assert(kIs<tessera_copy, TesseraStatus, T, T, Ctx>);
static_assert(kIs<tessera_quantize, TesseraStatus, T, T, T, T, int32_t, int32_t, Ctx>);
static_assert(kIs<tessera_dequantize, TesseraStatus, T, T, T, T, int32_t, Ctx>);
static_assert(kIs<tessera_reduce, TesseraStatus, T, T, int32_t, Ctx>);
static_assert(kIs<tessera_argmax, TesseraStatus, T, T, Ctx>);
static_assert(
    kIs<tessera_gemm, TesseraStatus, T, T, T, T, T, T, T, int32_t, int32_t, int32_t, Ctx>);
static_assert(kIs<tessera_embedding_computed, TesseraStatus, T, T, T, T, Ctx>);
static_assert(kIs<tessera_gemm_weight, TesseraStatus, const TesseraGemmArgs*, Ctx>);
static_assert(kIs<tessera_pack_weight, TesseraStatus, const TesseraPackWeightArgs*, Ctx>);
static_assert(kIs<tessera_gemm_codes, TesseraStatus, const TesseraGemmCodesArgs*, Ctx>);
static_assert(kIs<tessera_gemm_table, TesseraStatus, const TesseraGemmTableArgs*, Ctx>);
static_assert(kIs<tessera_sum_weight_rows, TesseraStatus, T, T, Ctx>);
static_assert(kIs<tessera_preferred_packing, TesseraStatus, const TesseraGemmArgs*, int32_t*, Ctx>);
static_assert(kIs<tessera_pack_gate_up, TesseraStatus, T, T, T, Ctx>);
static_assert(kIs<tessera_prune_2_4, TesseraStatus, T, T, T, Ctx>);
static_assert(kIs<tessera_expand_2_4, TesseraStatus, T, T, T, Ctx>);
static_assert(kIs<tessera_gemm_2_4, TesseraStatus, T, T, T, T, Ctx>);
static_assert(kIs<tessera_scale, TesseraStatus, T, T, T, float, float, Ctx>);
static_assert(kIs<tessera_on_objects, TesseraFunction, const char*>);
static_assert(kIs<tessera_num_cuda_devices, int>);
static_assert(kIs<tessera_device_info, TesseraStatus, int, TesseraDeviceInfo*>);
static_assert(kIs<tessera_synchronize, TesseraStatus, int, void*>);
static_assert(kIs<tessera_num_rows, int64_t>);
static_assert(kIs<tessera_row_info, TesseraStatus, int64_t, TesseraRowInfo*>);

}  // namespace
