// Mistral: a Llama with a sliding window.
// SPDX-License-Identifier: MIT
#include "model/families/llama.h"

namespace tessera::model {

extern const Family kMistral = {.model_type = "mistral",
                                .class_name = "MistralForCausalLM",
                                .read = &read_window,
                                .make = &make_llama};

}  // namespace tessera::model
