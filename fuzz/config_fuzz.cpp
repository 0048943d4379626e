// Fuzzes the reader of config.json: sizes that it accepts can be multiplied without overflow.
// SPDX-License-Identifier: MIT
#include "fuzz/fuzz.h"
#include "model/config.h"
#include "tessera/core/error.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const model::ModelConfig config = model::parse_config(fuzz::as_text(data, size), "input");
    fuzz::require(config.num_parameters() > 0, "a model has parameters");
    fuzz::require(config.kv_bytes_per_token(DType::f32) > 0, "a token has keys and values");
    fuzz::require(config.num_heads % config.num_kv_heads == 0, "the KV heads divide the heads");
  } catch (const Error&) {
    // Refused, as a malformed file should be.
  }
  return 0;
}
