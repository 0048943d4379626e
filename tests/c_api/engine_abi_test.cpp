// The engine's C ABI as version 1 froze it: sizes, offsets, enum values and function types. A line
// that no longer compiles is an incompatible change; fields are added at the end of a struct.
// SPDX-License-Identifier: MIT
#include <cstddef>
#include <type_traits>

#include "tessera/c_engine.h"

namespace {

static_assert(TESSERA_ENGINE_ABI_VERSION == 1);

static_assert(sizeof(TesseraEngineOptions) == 160);
static_assert(offsetof(TesseraEngineOptions, struct_size) == 0);
static_assert(offsetof(TesseraEngineOptions, device) == 8);
static_assert(offsetof(TesseraEngineOptions, dtype) == 16);
static_assert(offsetof(TesseraEngineOptions, weights) == 24);
static_assert(offsetof(TesseraEngineOptions, kv) == 32);
static_assert(offsetof(TesseraEngineOptions, speculation) == 40);
static_assert(offsetof(TesseraEngineOptions, max_context) == 48);
static_assert(offsetof(TesseraEngineOptions, kv_bytes) == 56);
static_assert(offsetof(TesseraEngineOptions, page_size) == 64);
static_assert(offsetof(TesseraEngineOptions, max_batch) == 72);
static_assert(offsetof(TesseraEngineOptions, max_step_tokens) == 80);
static_assert(offsetof(TesseraEngineOptions, max_step_logits) == 88);
static_assert(offsetof(TesseraEngineOptions, max_draft_tokens) == 96);
static_assert(offsetof(TesseraEngineOptions, num_threads) == 104);
static_assert(offsetof(TesseraEngineOptions, check_weights) == 112);
static_assert(offsetof(TesseraEngineOptions, use_prefix_cache) == 116);
static_assert(offsetof(TesseraEngineOptions, use_graphs) == 120);
static_assert(offsetof(TesseraEngineOptions, runs_ahead) == 124);
static_assert(offsetof(TesseraEngineOptions, step_timeout_s) == 128);
static_assert(offsetof(TesseraEngineOptions, on_load) == 136);
static_assert(offsetof(TesseraEngineOptions, user) == 144);
static_assert(offsetof(TesseraEngineOptions, activations) == 152);

static_assert(sizeof(TesseraRequest) == 224);
static_assert(offsetof(TesseraRequest, struct_size) == 0);
static_assert(offsetof(TesseraRequest, text) == 8);
static_assert(offsetof(TesseraRequest, text_bytes) == 16);
static_assert(offsetof(TesseraRequest, tokens) == 24);
static_assert(offsetof(TesseraRequest, num_tokens) == 32);
static_assert(offsetof(TesseraRequest, messages_json) == 40);
static_assert(offsetof(TesseraRequest, template_json) == 48);
static_assert(offsetof(TesseraRequest, temperature) == 56);
static_assert(offsetof(TesseraRequest, top_k) == 60);
static_assert(offsetof(TesseraRequest, top_p) == 64);
static_assert(offsetof(TesseraRequest, min_p) == 68);
static_assert(offsetof(TesseraRequest, typical_p) == 72);
static_assert(offsetof(TesseraRequest, repetition_penalty) == 76);
static_assert(offsetof(TesseraRequest, presence_penalty) == 80);
static_assert(offsetof(TesseraRequest, frequency_penalty) == 84);
static_assert(offsetof(TesseraRequest, bias_tokens) == 88);
static_assert(offsetof(TesseraRequest, bias_values) == 96);
static_assert(offsetof(TesseraRequest, num_biases) == 104);
static_assert(offsetof(TesseraRequest, seed) == 112);
static_assert(offsetof(TesseraRequest, has_seed) == 120);
static_assert(offsetof(TesseraRequest, has_special) == 124);
static_assert(offsetof(TesseraRequest, max_new_tokens) == 128);
static_assert(offsetof(TesseraRequest, min_new_tokens) == 136);
static_assert(offsetof(TesseraRequest, stop) == 144);
static_assert(offsetof(TesseraRequest, num_stop) == 152);
static_assert(offsetof(TesseraRequest, stop_tokens) == 160);
static_assert(offsetof(TesseraRequest, num_stop_tokens) == 168);
static_assert(offsetof(TesseraRequest, ignores_eos) == 176);
static_assert(offsetof(TesseraRequest, num_outputs) == 180);
static_assert(offsetof(TesseraRequest, beam_width) == 184);
static_assert(offsetof(TesseraRequest, length_penalty) == 188);
static_assert(offsetof(TesseraRequest, num_logprobs) == 192);
static_assert(offsetof(TesseraRequest, wants_prompt_logprobs) == 196);
static_assert(offsetof(TesseraRequest, priority) == 200);
static_assert(offsetof(TesseraRequest, pooling) == 204);
static_assert(offsetof(TesseraRequest, timeout_s) == 208);
static_assert(offsetof(TesseraRequest, cache_salt) == 216);

static_assert(sizeof(TesseraOutput) == 128);
static_assert(offsetof(TesseraOutput, struct_size) == 0);
static_assert(offsetof(TesseraOutput, index) == 8);
static_assert(offsetof(TesseraOutput, finish) == 12);
static_assert(offsetof(TesseraOutput, is_last) == 16);
static_assert(offsetof(TesseraOutput, num_top) == 20);
static_assert(offsetof(TesseraOutput, text) == 24);
static_assert(offsetof(TesseraOutput, text_bytes) == 32);
static_assert(offsetof(TesseraOutput, tokens) == 40);
static_assert(offsetof(TesseraOutput, logprobs) == 48);
static_assert(offsetof(TesseraOutput, top_tokens) == 56);
static_assert(offsetof(TesseraOutput, top_logprobs) == 64);
static_assert(offsetof(TesseraOutput, num_tokens) == 72);
static_assert(offsetof(TesseraOutput, prompt_logprobs) == 80);
static_assert(offsetof(TesseraOutput, num_prompt_logprobs) == 88);
static_assert(offsetof(TesseraOutput, num_prompt_tokens) == 96);
static_assert(offsetof(TesseraOutput, num_cached_tokens) == 104);
static_assert(offsetof(TesseraOutput, error) == 112);
static_assert(offsetof(TesseraOutput, score) == 120);

static_assert(sizeof(TesseraEngineStats) == 248);
static_assert(offsetof(TesseraEngineStats, struct_size) == 0);
static_assert(offsetof(TesseraEngineStats, is_dead) == 8);
static_assert(offsetof(TesseraEngineStats, num_waiting) == 16);
static_assert(offsetof(TesseraEngineStats, num_running) == 24);
static_assert(offsetof(TesseraEngineStats, num_finished) == 32);
static_assert(offsetof(TesseraEngineStats, num_cancelled) == 40);
static_assert(offsetof(TesseraEngineStats, num_preemptions) == 48);
static_assert(offsetof(TesseraEngineStats, num_steps) == 56);
static_assert(offsetof(TesseraEngineStats, num_prompt_tokens) == 64);
static_assert(offsetof(TesseraEngineStats, num_replayed_tokens) == 72);
static_assert(offsetof(TesseraEngineStats, num_cached_tokens) == 80);
static_assert(offsetof(TesseraEngineStats, num_generated_tokens) == 88);
static_assert(offsetof(TesseraEngineStats, num_pages) == 96);
static_assert(offsetof(TesseraEngineStats, num_held_pages) == 104);
static_assert(offsetof(TesseraEngineStats, num_idle_pages) == 112);
static_assert(offsetof(TesseraEngineStats, num_shared_pages) == 120);
static_assert(offsetof(TesseraEngineStats, kv_bytes) == 128);
static_assert(offsetof(TesseraEngineStats, kv_bytes_per_token) == 136);
static_assert(offsetof(TesseraEngineStats, num_held_tokens) == 144);
static_assert(offsetof(TesseraEngineStats, weight_bytes) == 152);
static_assert(offsetof(TesseraEngineStats, activation_bytes) == 160);
static_assert(offsetof(TesseraEngineStats, num_graphs) == 168);
static_assert(offsetof(TesseraEngineStats, num_replays) == 176);
static_assert(offsetof(TesseraEngineStats, num_wasted_rows) == 184);
static_assert(offsetof(TesseraEngineStats, num_drafted_tokens) == 192);
static_assert(offsetof(TesseraEngineStats, num_accepted_tokens) == 200);
static_assert(offsetof(TesseraEngineStats, device_bytes) == 208);
static_assert(offsetof(TesseraEngineStats, peak_device_bytes) == 216);
static_assert(offsetof(TesseraEngineStats, peak_host_bytes) == 224);
static_assert(offsetof(TesseraEngineStats, kv_waste) == 232);
static_assert(offsetof(TesseraEngineStats, kv_share_of_contiguous) == 240);

static_assert(sizeof(TesseraEngineInfo) == 40);
static_assert(offsetof(TesseraEngineInfo, struct_size) == 0);
static_assert(offsetof(TesseraEngineInfo, vocab) == 8);
static_assert(offsetof(TesseraEngineInfo, max_context) == 16);
static_assert(offsetof(TesseraEngineInfo, device_index) == 24);
static_assert(offsetof(TesseraEngineInfo, has_chat_template) == 28);
static_assert(offsetof(TesseraEngineInfo, bos_token) == 32);
static_assert(offsetof(TesseraEngineInfo, eos_token) == 36);

static_assert(TESSERA_FINISH_NONE == 0);
static_assert(TESSERA_FINISH_STOP == 1);
static_assert(TESSERA_FINISH_LENGTH == 2);
static_assert(TESSERA_FINISH_CANCELLED == 3);
static_assert(TESSERA_FINISH_DEADLINE == 4);
static_assert(TESSERA_FINISH_ERROR == 5);

template <auto kFunction, class Result, class... Args>
constexpr bool kIs = std::is_same_v<decltype(kFunction), Result (*)(Args...)>;
using S = TesseraStatus;
using E = TesseraEngine*;
using ConstE = const TesseraEngine*;
using G = TesseraGeneration*;
using Text = const char*;

static_assert(kIs<tessera_engine_abi_version, int>);
static_assert(kIs<tessera_engine_options_init, void, TesseraEngineOptions*>);
static_assert(kIs<tessera_request_init, void, TesseraRequest*>);
static_assert(kIs<tessera_engine_create, S, Text, const TesseraEngineOptions*, E*>);
static_assert(kIs<tessera_engine_destroy, void, E>);
static_assert(kIs<tessera_engine_info, S, ConstE, TesseraEngineInfo*>);
static_assert(kIs<tessera_engine_stats, S, E, TesseraEngineStats*>);
static_assert(kIs<tessera_engine_submit, S, E, const TesseraRequest*, int64_t, G*>);
static_assert(kIs<tessera_generation_next, S, G, double, int32_t, TesseraOutput*>);
static_assert(
    kIs<tessera_generation_embedding, S, const TesseraGeneration*, float*, int64_t, int64_t*>);
static_assert(kIs<tessera_generation_descriptor, S, G, int*>);
static_assert(kIs<tessera_generation_cancel, S, G>);
static_assert(kIs<tessera_generation_destroy, void, G>);
static_assert(kIs<tessera_engine_encode, S, ConstE, Text, int64_t, int32_t, int32_t, int32_t*,
                  int64_t, int64_t*>);
static_assert(kIs<tessera_engine_decode, S, ConstE, const int32_t*, int64_t, int32_t, char*,
                  int64_t, int64_t*>);
static_assert(kIs<tessera_engine_token, S, ConstE, int32_t, char*, int64_t, int64_t*>);
static_assert(kIs<tessera_engine_render, S, ConstE, Text, Text, int32_t, char*, int64_t, int64_t*>);
static_assert(
    kIs<tessera_engine_encode_chat, S, ConstE, Text, Text, int32_t, int32_t*, int64_t, int64_t*>);

}  // namespace
