"""The structs of the engine's C ABI, described once.

tools/generate_bindings.py writes include/tessera/c_engine_types.h and
python/tessera/_engine_types.py from them. Their order is frozen: add to the end of a struct.
"""
# SPDX-License-Identifier: MIT

from describe import Enum, Struct

FINISH_REASON = Enum(
    "TesseraFinishReason", "TESSERA_FINISH_",
    {"none": 0, "stop": 1, "length": 2, "cancelled": 3, "deadline": 4, "error": 5},
    python="FINISH_REASONS", cpp="FinishReason",
    notes={"none": "the sequence goes on",
           "stop": "end of text, a stop token or a stop string",
           "length": "max_new_tokens, or the context is full",
           "error": "TesseraOutput.error says why"})
ENGINE_ENUMS = [FINISH_REASON]

SIZE = ("uint64_t", "struct_size", "set by the init function")


def integers(*names):
    return tuple(("int64_t", name, "") for name in names)


ENGINE_STRUCTS = [
    Struct(
        "TesseraEngineOptions", "EngineOptions", (
            SIZE,
            ("const char*", "device",
             '"auto": the first GPU if it has all kernels for the model;\n"cpu", "cuda", "cuda:1"'),
            ("const char*", "dtype", '"bf16", "f16" or "f32": of weights and activations'),
            ("const char*", "weights", '"stored", "int8" and so on, as tessera run --weights'),
            ("const char*", "kv", '"plain", "e4m3" and so on, as tessera run --kv'),
            ("const char*", "speculation", '"off" or "lookup"'),
            ("int64_t", "max_context", "0: what the model was made for"),
            ("int64_t", "kv_bytes", "0: enough for max_batch contexts, within free memory"),
            ("int64_t", "page_size", "tokens; 0: what the KV format wants"),
            ("int64_t", "max_batch", "sequences in one step, without their drafts"),
            ("int64_t", "max_step_tokens", "0: 512 on the CPU, 2048 on a GPU"),
            ("int64_t", "max_step_logits", "0: max_batch"),
            ("int64_t", "max_draft_tokens", ""),
            ("int64_t", "num_threads", "of CPU operations in this process; 0: as it is"),
            ("int32_t", "check_weights", "1: refuse NaN and infinity when loading"),
            ("int32_t", "use_prefix_cache", ""),
            ("int32_t", "use_graphs", ""),
            ("int32_t", "runs_ahead", "-1: on a GPU"),
            ("double", "step_timeout_s", "negative: 120 on a GPU and no limit on the CPU; 0: none"),
            ("TesseraLoadFunction", "on_load",
             "NULL, or called by the creating thread as weights arrive"),
            ("void*", "user", "passed to on_load"),
            ("const char*", "activations",
             '"auto", "plain" or "8bit", as tessera run --activations')),
        doc="tessera/engine/engine.h, EngineOptions, which explains the fields. "
            "tessera_engine_options_init fills in the defaults; a NULL string is one too."),
    Struct(
        "TesseraRequest", "Request", (
            SIZE,
            ("const char*", "text", "plain text to be continued"),
            ("int64_t", "text_bytes", "-1: up to its NUL"),
            ("const int32_t*", "tokens", "or token ids"),
            ("int64_t", "num_tokens", ""),
            ("const char*", "messages_json",
             'or a conversation: [{"role": "user", "content": "Hello"}]'),
            ("const char*", "template_json",
             'more variables for the chat template, as an object, such as {"tools": []}; or NULL'),
            ("float", "temperature", "0: greedy"),
            ("int32_t", "top_k", "0: all"),
            ("float", "top_p", ""),
            ("float", "min_p", ""),
            ("float", "typical_p", ""),
            ("float", "repetition_penalty", ""),
            ("float", "presence_penalty", ""),
            ("float", "frequency_penalty", ""),
            ("const int32_t*", "bias_tokens", "[num_biases]"),
            ("const float*", "bias_values", "[num_biases]"),
            ("int64_t", "num_biases", ""),
            ("uint64_t", "seed", "read if has_seed"),
            ("int32_t", "has_seed", ""),
            ("int32_t", "has_special", "1: control tokens spelled out in text count as such"),
            ("int64_t", "max_new_tokens", "0 only with wants_prompt_logprobs or pooling"),
            ("int64_t", "min_new_tokens", ""),
            ("const char* const*", "stop", "[num_stop] strings"),
            ("int64_t", "num_stop", ""),
            ("const int32_t*", "stop_tokens", "[num_stop_tokens]"),
            ("int64_t", "num_stop_tokens", ""),
            ("int32_t", "ignores_eos", ""),
            ("int32_t", "num_outputs", ""),
            ("int32_t", "beam_width", "0: no beam search"),
            ("float", "length_penalty", ""),
            ("int32_t", "num_logprobs", "-1: none; else alternatives beside the token's own"),
            ("int32_t", "wants_prompt_logprobs", ""),
            ("int32_t", "priority", "larger goes first"),
            ("int32_t", "pooling",
             "an embedding in place of text, with max_new_tokens 0:\n"
             "1 the hidden state of the last token, 2 the mean over all;\n0: none"),
            ("double", "timeout_s", "0: none"),
            ("const char*", "cache_salt", "NULL: none")),
        doc="tessera/engine/request.h, Request and SamplingParams, which explain the fields. "
            "tessera_request_init fills in the defaults; give exactly one of text, tokens and "
            "messages_json."),
    Struct(
        "TesseraOutput", "Output", (
            ("uint64_t", "struct_size", "set by the caller"),
            ("int32_t", "index", "0 to num_outputs - 1: which sequence this is about"),
            ("int32_t", "finish", "TesseraFinishReason"),
            ("int32_t", "is_last", "1: every sequence has ended and been reported"),
            ("int32_t", "num_top", "alternatives of each token"),
            ("const char*", "text", "whole UTF-8 characters; ends with NUL"),
            ("int64_t", "text_bytes", ""),
            ("const int32_t*", "tokens", "[num_tokens]"),
            ("const float*", "logprobs", "[num_tokens]; NULL if not asked for"),
            ("const int32_t*", "top_tokens", "[num_tokens, num_top], best first; -1: none"),
            ("const float*", "top_logprobs", "[num_tokens, num_top]"),
            ("int64_t", "num_tokens", ""),
            ("const float*", "prompt_logprobs", "[num_prompt_logprobs]"),
            ("int64_t", "num_prompt_logprobs", "num_prompt_tokens - 1 if asked for, else 0"),
            ("int64_t", "num_prompt_tokens", "in the first output of sequence 0, else 0"),
            ("int64_t", "num_cached_tokens", "of the prompt, reused from the prefix cache"),
            ("const char*", "error", 'one line; ""'),
            ("double", "score", "of a finished beam")),
        doc="What a sequence has gained since the call before. The pointers are valid until the "
            "next call of tessera_generation_next for the generation, or its end."),
    Struct(
        "TesseraEngineStats", "EngineStats", (
            ("uint64_t", "struct_size", "set by the caller"),
            *integers("is_dead", "num_waiting", "num_running", "num_finished", "num_cancelled",
                      "num_preemptions", "num_steps", "num_prompt_tokens", "num_replayed_tokens",
                      "num_cached_tokens", "num_generated_tokens", "num_pages", "num_held_pages",
                      "num_idle_pages", "num_shared_pages", "kv_bytes", "kv_bytes_per_token",
                      "num_held_tokens", "weight_bytes", "activation_bytes", "num_graphs",
                      "num_replays", "num_wasted_rows", "num_drafted_tokens",
                      "num_accepted_tokens", "device_bytes", "peak_device_bytes",
                      "peak_host_bytes"),
            ("double", "kv_waste", ""),
            ("double", "kv_share_of_contiguous", "")),
        doc="tessera/engine/engine.h, EngineMetrics, which explains the fields."),
    Struct(
        "TesseraEngineInfo", "CEngineInfo", (
            ("uint64_t", "struct_size", "set by the caller"),
            ("int64_t", "vocab", ""),
            ("int64_t", "max_context", ""),
            ("int32_t", "device_index", "of a CUDA device; -1: the CPU"),
            ("int32_t", "has_chat_template", ""),
            ("int32_t", "bos_token", "-1: none"),
            ("int32_t", "eos_token", "-1: none")),
        doc="What tessera_engine_info says of a loaded model."),
]
