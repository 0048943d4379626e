// Every family, by what config.json calls it.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <iterator>

#include "core/text.h"
#include "model/family.h"
#include "tessera/core/error.h"

namespace tessera::model {

extern const Family kLlama, kMistral, kQwen2, kPhi3, kGemma2, kOlmo2, kGranite, kQwen3;

namespace {

constexpr const Family* kFamilies[] = {&kLlama,  &kMistral, &kQwen2,   &kPhi3,
                                       &kGemma2, &kOlmo2,   &kGranite, &kQwen3};

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family& family_of(const ModelConfig& config) {
  const auto found = std::ranges::find(kFamilies, config.architecture,
                                       [](const Family* family) { return family->model_type; });
  if (found == std::end(kFamilies)) {
    fail(concat("model: there is no family '", shown(config.architecture), "'"));
  }
  return **found;
}

}  // namespace tessera::model
