// Qwen2: a Llama whose queries, keys and values have biases, and whose later layers may have a
// sliding window.
// SPDX-License-Identifier: MIT
#include "model/families/llama.h"

namespace tessera::model {
namespace {

void read_qwen2(const Fields& fields, ModelConfig& config) {
  config.has_qkv_bias = true;
  read_late_window(fields, config);
}

}  // namespace

extern const Family kQwen2 = {.model_type = "qwen2",
                              .class_name = "Qwen2ForCausalLM",
                              .read = &read_qwen2,
                              .make = &make_llama};

}  // namespace tessera::model
