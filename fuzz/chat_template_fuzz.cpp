// Fuzzes the template interpreter: for any source it ends soon and stays within its limits.
// SPDX-License-Identifier: MIT
#include <vector>

#include "fuzz/fuzz.h"
#include "tessera/core/error.h"
#include "tessera/text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const TemplateLimits limits{.steps = 20'000, .output_bytes = 64 << 10, .depth = 32};
  const ChatMessage messages[] = {{"system", "Be <|eot_id|> brief."}, {"user", " Hello {{ x }} "}};
  const ChatOptions options{.bos_token = "<s>",
                            .eos_token = "</s>",
                            .variables_json = R"({"tools": [{"name": "f", "n": [1, 2.5, null]}]})"};
  try {
    const ChatTemplate chat = ChatTemplate::parse(fuzz::as_text(data, size), limits);
    size_t num_bytes = 0;
    for (const TextPart& part : chat.render(messages, options)) num_bytes += part.text.size();
    fuzz::require(num_bytes <= static_cast<size_t>(limits.output_bytes), "the output is bounded");
  } catch (const Error&) {
    // Refused, as a malformed template should be.
  }
  return 0;
}
