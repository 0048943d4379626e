/* The engine through the C ABI: a model folder in, requests in, text and tokens out. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdint.h>

#include "tessera/c_engine_types.h"
#include "tessera/c_types.h"

/* Conventions
 *   Errors      As in tessera/c.h: TESSERA_OK, or a status whose message tessera_last_error has.
 *   Threads     An engine computes on a thread of its own. Every function may be called from any
 *               thread at any time, but only one thread at a time may use a generation, and
 *               nothing may use what is being destroyed.
 *   Structs     An init function sets struct_size and every default. A struct of an older header is
 *               taken: fields that it lacks have their defaults.
 *   Arrays      A function that returns an array takes room for `capacity` elements, writes as many
 *               as fit and stores in *count how many there are. If *count is larger, call again.
 *   Processes   A child process made by fork() has no engine thread: calls in it are refused.
 */

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Raised by one whenever a function or struct of this header changes incompatibly. */
enum { TESSERA_ENGINE_ABI_VERSION = 1 };
int tessera_engine_abi_version(void); /* of the library that was loaded */

typedef struct TesseraEngine TesseraEngine;
typedef struct TesseraGeneration TesseraGeneration;

void tessera_engine_options_init(TesseraEngineOptions* options); /* NULL is ignored */
void tessera_request_init(TesseraRequest* request);

/* Loads a Hugging Face folder: config.json, tokenizer.json, safetensors. options may be NULL. */
TesseraStatus tessera_engine_create(const char* folder, const TesseraEngineOptions* options,
                                    TesseraEngine** engine);
/* Ends all generations as cancelled, and frees the model. NULL is ignored. Generations still have
 * to be destroyed, before or after. */
void tessera_engine_destroy(TesseraEngine* engine);
TesseraStatus tessera_engine_info(const TesseraEngine* engine, TesseraEngineInfo* info);
/* Waits for the step in progress. */
TesseraStatus tessera_engine_stats(TesseraEngine* engine, TesseraEngineStats* stats);

/* Submits requests[0] to requests[count - 1], which lie one after another, together: generations
 * gets one handle for each. If one is refused, none runs, and the message names it. Waits for the
 * step in progress. */
TesseraStatus tessera_engine_submit(TesseraEngine* engine, const TesseraRequest* requests,
                                    int64_t count, TesseraGeneration** generations);

/* What a sequence of the generation has gained since the call before; waits up to timeout_s for
 * it, or without limit if that is negative. index is -1 if there is nothing, either because time
 * is up or, with is_last set, because everything was reported before. whole: 1 waits until a
 * sequence has ended, and reports all of it at once. */
TesseraStatus tessera_generation_next(TesseraGeneration* generation, double timeout_s,
                                      int32_t whole, TesseraOutput* output);
/* A file descriptor that poll() finds readable while tessera_generation_next would not have to wait
 * (with whole 0). It belongs to the generation; do not read or close it. */
TesseraStatus tessera_generation_descriptor(TesseraGeneration* generation, int* descriptor);
/* The embedding of a request with `pooling`, as an array of floats as long as the model's hidden
 * state, not scaled to any length: of the output that tessera_generation_next reported last. Empty
 * if that has none. */
TesseraStatus tessera_generation_embedding(const TesseraGeneration* generation, float* values,
                                           int64_t capacity, int64_t* count);
/* Takes effect in the next step: sequences that have not ended finish as cancelled. */
TesseraStatus tessera_generation_cancel(TesseraGeneration* generation);
/* Cancels it if it is not finished, and frees it. NULL is ignored. */
void tessera_generation_destroy(TesseraGeneration* generation);

/* The ids of a text; num_bytes -1: up to its NUL. add_special: with the tokens that the tokenizer
 * puts before every text. has_special: control tokens spelled out in it count as such. */
TesseraStatus tessera_engine_encode(const TesseraEngine* engine, const char* text,
                                    int64_t num_bytes, int32_t add_special, int32_t has_special,
                                    int32_t* tokens, int64_t capacity, int64_t* count);
/* The text of ids, in UTF-8 without a NUL. keep_special: with the names of control tokens. */
TesseraStatus tessera_engine_decode(const TesseraEngine* engine, const int32_t* tokens,
                                    int64_t num_tokens, int32_t keep_special, char* text,
                                    int64_t capacity, int64_t* count);
/* The entry of one id in the vocabulary, as tokenizer.json has it; "" for an unused id. */
TesseraStatus tessera_engine_token(const TesseraEngine* engine, int32_t token, char* text,
                                   int64_t capacity, int64_t* count);
/* A conversation as the chat template renders it: as text, and as the ids that the model reads.
 * Arguments as in TesseraRequest. add_generation_prompt: up to where the answer begins. */
TesseraStatus tessera_engine_render(const TesseraEngine* engine, const char* messages_json,
                                    const char* template_json, int32_t add_generation_prompt,
                                    char* text, int64_t capacity, int64_t* count);
TesseraStatus tessera_engine_encode_chat(const TesseraEngine* engine, const char* messages_json,
                                         const char* template_json, int32_t add_generation_prompt,
                                         int32_t* tokens, int64_t capacity, int64_t* count);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
} /* extern "C" */
#endif
