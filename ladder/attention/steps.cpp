// The rows of the attention ladder.
// SPDX-License-Identifier: MIT
#include "ladder/attention/steps.h"

#include <algorithm>

#include "core/text.h"
#include "ladder/steps.h"
#include "tessera/core/error.h"

namespace tessera::ladder::attention {
namespace {

// clang-format off
constexpr Step kSteps[] = {
    {"01_three_pass", "01_three_pass.cu", Library::portable, 1, false, &launch_three_pass,
     &three_pass_scratch_bytes},
    {"02_online_softmax", "02_online_softmax.cu", Library::portable, 1, false,
     &launch_online_softmax},
    {"03_tiled", "03_tiled.cu", Library::portable, 64, false, &launch_tiled},
    {"04_tensor_core", "04_tensor_core.cu", Library::portable, 64, true, &launch_tensor_core},
    {"05_portable", "05_portable.cpp", Library::portable, 1, true, &launch_portable, nullptr,
     &has_portable},
    {"06_sm90", "06_sm90.cpp", Library::sm90, 1, true, &launch_sm90, nullptr, &has_sm90},
};
// clang-format on

}  // namespace

std::span<const Step> steps() { return kSteps; }

const Step& find_step(std::string_view name) { return find_by_name(steps(), name); }

std::string missing(const Step& step) { return why_missing(step.library, step.is_present); }

Tensor make_scratch(const Step& step, const Problem& problem) {
  constexpr int64_t kLeast = 256;
  const int64_t num_bytes = step.scratch_bytes == nullptr ? 0 : step.scratch_bytes(problem);
  return Tensor(DType::u8, {std::max(kLeast, num_bytes)}, cuda_device());
}

Problem with_scratch(Problem problem, const Tensor& scratch) {
  problem.scratch = scratch.view().data;
  return problem;
}

void run(const Step& step, const Problem& problem, const Context& ctx) {
  if (!step.accepts(problem.seq)) {
    fail(concat("ladder: ", step.name, " got ", problem.seq,
                " tokens a sequence; they must be a positive multiple of ", step.multiple));
  }
  expects(step.scratch_bytes == nullptr || problem.scratch != nullptr,
          "ladder: this step needs scratch memory");
  step.launch(problem, ctx);
}

}  // namespace tessera::ladder::attention
