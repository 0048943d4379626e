// A task by its name.
// SPDX-License-Identifier: MIT
#include "apps/eval/tasks.h"

#include <algorithm>

#include "apps/options.h"
#include "apps/text_file.h"
#include "core/text.h"

namespace tessera::apps {

std::vector<Question> load_task(const std::string& task, const std::filesystem::path& data,
                                int64_t num_shots) {
  const int64_t shots = std::max<int64_t>(0, num_shots);
  std::vector<Question> questions;
  if (task == "mmlu") {
    questions = load_mmlu(data, num_shots < 0 ? 5 : num_shots);
  } else if (task == "arc") {
    questions = with_shots(parse_arc(read_text_file(data), shown_path(data.native())), shots);
  } else if (task == "hellaswag") {
    questions = with_shots(parse_hellaswag(read_text_file(data), shown_path(data.native())), shots);
  } else {
    throw UsageError(concat("no task '", task, "'; there are hellaswag, arc and mmlu"));
  }
  if (questions.empty())
    throw Error(concat(shown_path(data.native()), " holds no questions to ask"));
  return questions;
}

}  // namespace tessera::apps
