// A model in a GGUF file: its configuration, and the names of its tensors.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/gguf/gguf.h"

namespace tessera::model {

// Reads bytes of the file from `begin` on.
using ReadBytes = std::function<void(int64_t begin, std::span<std::byte> to)>;

// The configuration that the metadata describes, with the formats of all matrices. Refuses an
// architecture that is not supported, by name.
ModelConfig gguf_config(const GgufFile& gguf, const ReadBytes& read);

// "blk.3.attn_q.weight" as the layers call it: "model.layers.3.self_attn.q_proj.weight". A tensor
// that no model has gets a name that loading refuses.
std::string gguf_tensor_name(std::string_view name);

// The tokenizer of the metadata as the text of a tokenizer.json. Refuses, by name, a kind other
// than gpt2 (byte-level BPE) and llama (SentencePiece), and an unknown pre-tokenizer.
std::string gguf_tokenizer_json(const GgufFile& gguf);

}  // namespace tessera::model
