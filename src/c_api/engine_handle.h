// What the handles of the engine's C ABI point to.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "c_api/engine_host.h"
#include "c_api/engine_read.h"
#include "tessera/c_engine.h"
#include "tessera/text/chat_template.h"
#include "tessera/text/prompt.h"

struct TesseraEngine {
  TesseraEngine(const std::string& folder, const TesseraEngineOptions* options);

  // Parsed when it is first used, so that a model whose template is not understood still continues
  // plain text. Refuses a model without one.
  const tessera::ChatTemplate& chat_template() const;
  std::vector<tessera::TextPart> render(const char* messages_json, const char* template_json,
                                        bool add_generation_prompt) const;

  std::shared_ptr<tessera::c_api::EngineHost> host;
  tessera::ChatSettings settings;
  tessera::PromptMaker prompts;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<tessera::ChatTemplate> template_;
};

// A stream, and the output that its caller is looking at.
struct TesseraGeneration {
  std::shared_ptr<tessera::c_api::OutputStream> stream;
  std::weak_ptr<tessera::c_api::EngineHost> host;
  int32_t num_top = 0;
  bool has_logprobs = false;

  tessera::SequenceOutput output = {};
  std::vector<int32_t> tokens = {};
  std::vector<float> logprobs = {};
  std::vector<int32_t> top_tokens = {};
  std::vector<float> top_logprobs = {};
};

namespace tessera::c_api {

template <class Handle>
Handle& given(Handle* handle, std::string_view what) {
  if (handle == nullptr) fail(concat(what, " is NULL"));
  return *handle;
}

// Copies as many values as fit, and sets `count` to how many there are.
template <class T>
void write_array(std::span<const T> values, T* to, int64_t capacity, int64_t* count) {
  given(count, "count");
  if (capacity < 0 || (capacity > 0 && to == nullptr)) {
    fail(concat("capacity is ", capacity, to == nullptr ? " and the array is NULL" : ""));
  }
  *count = std::ssize(values);
  const size_t fits = std::min(values.size(), static_cast<size_t>(capacity));
  if (fits > 0) std::memcpy(to, values.data(), fits * sizeof(T));
}

}  // namespace tessera::c_api
