/* What plain_c.c offers the C++ test. */
/* SPDX-License-Identifier: MIT */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Runs SiLU on a zero through the C ABI; 0 if it was served. */
int silu_of_zero_from_c(float* result);

/* Attends with the last of two tokens, both causally visible and equally; 0 if it was served. */
int attention_from_c(float* result);
/* -1 if an engine was made of no folder; else how many tokens a request is for by default. */
int default_tokens_from_c(void);

#ifdef __cplusplus
}
#endif
