// Fuzzes the reader of request bodies: what it accepts is a request that the engine would take.
// SPDX-License-Identifier: MIT
#include "fuzz/fuzz.h"
#include "server/generation_request.h"
#include "tessera/core/error.h"
#include "tests/server/bundled.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const testing::Bundled bundled(
      "{% for t in tools %}<tool_call>{{ t.function.name }}{% endfor %}"
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}");
  const server::ServedModel& model = bundled.model();
  for (const server::Api api :
       {server::Api::completions, server::Api::chat, server::Api::embeddings}) {
    try {
      const server::GenerationRequest made =
          server::read_generation(api, fuzz::as_text(data, size), model);
      fuzz::require(!made.prompts.empty(), "there is a prompt");
      const bool has_text = api != server::Api::embeddings;
      fuzz::require(made.echoes.size() == (has_text ? made.prompts.size() : 0), "echoes");
      for (const Request& one : made.prompts) {
        engine::check_request(one, model.capacity);
        fuzz::require(one.num_outputs >= made.num_choices, "enough sequences are sampled");
      }
    } catch (const Error&) {
      // Refused, as a malformed body should be.
    }
  }
  return 0;
}
