// The post-processor: the special tokens before and after a single text.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer/file_node.h"
#include "text/tokenizer/vocabulary.h"

namespace tessera::tokenizer {

struct Affixes {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Refuses templates that name ids the vocabulary does not have.
Affixes read_post_processor(const FileNode& node, const Vocabulary& vocabulary);

}  // namespace tessera::tokenizer
