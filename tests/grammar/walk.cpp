// Random texts under a constraint.
// SPDX-License-Identifier: MIT
#include "tests/grammar/walk.h"

#include <algorithm>
#include <filesystem>
#include <vector>

namespace tessera::grammar::testing {
namespace {

std::vector<int32_t> members(std::span<const uint32_t> bits) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < bits.size() * 32; ++i) {
    if ((bits[i / 32] >> (i % 32) & 1u) != 0) ids.push_back(static_cast<int32_t>(i));
  }
  return ids;
}

// Of 16 tokens of the mask, the one after which fewest rules are open; of equals, one that closes
// something.
int32_t way_out(TokenMasks& masks, const Progress& progress, const std::vector<int32_t>& ids,
                std::mt19937& random) {
  int32_t best = ids.front();
  size_t least = SIZE_MAX;
  std::vector<int32_t> tried;
  for (const char* closing : {"\"", "}", "]", "}]", "\"}", "0", ",\""}) {
    const std::optional<int32_t> id = bundled_tokenizer().find(closing);
    if (id && std::ranges::find(ids, *id) != ids.end()) tried.push_back(*id);
  }
  for (int i = 0; i < 16; ++i) tried.push_back(ids[random() % ids.size()]);
  for (const int32_t id : tried) {
    Progress next = progress;
    if (!masks.advance(next, id)) continue;
    size_t depth = masks.is_complete(next) ? 0 : 1;
    for (const Stack& stack : next.place.stacks) depth += 2 * stack.size();
    if (depth >= least) continue;
    least = depth;
    best = id;
  }
  return best;
}

}  // namespace

const Tokenizer& bundled_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(std::filesystem::path(TESSERA_SOURCE_DIR) /
                                                     "models/tessera-13m/tokenizer.json");
  return tokenizer;
}

std::shared_ptr<const VocabularyTries> bundled_tries() {
  static const auto tries = std::make_shared<const VocabularyTries>(bundled_tokenizer());
  return tries;
}

Walk random_walk(TokenMasks& masks, std::mt19937& random, int max_tokens) {
  Walk walk;
  Progress progress = masks.start();
  std::vector<uint32_t> bits(static_cast<size_t>(bundled_tries()->rest.num_ids() + 31) / 32);
  for (int i = 0; i < max_tokens; ++i) {
    if (masks.is_final(progress) ||
        (masks.is_complete(progress) && (random() % 4 == 0 || i > max_tokens / 2))) {
      walk.is_complete = true;
      return walk;
    }
    masks.fill(progress, bits);
    const std::vector<int32_t> ids = members(bits);
    if (ids.empty()) return walk;
    const int32_t id =
        i < max_tokens / 2 ? ids[random() % ids.size()] : way_out(masks, progress, ids, random);
    walk.text += bundled_tries()->of(progress.is_first).text(id);
    if (!masks.advance(progress, id)) return walk;
  }
  walk.is_complete = masks.is_complete(progress);
  return walk;
}

}  // namespace tessera::grammar::testing
