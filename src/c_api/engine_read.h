// Structs of the engine's C ABI as the C++ structs they stand for.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "c_api/call.h"
#include "tessera/c_engine.h"
#include "tessera/engine/engine.h"
#include "tessera/text/chat_template.h"

namespace tessera::c_api {

// The caller's struct, with defaults for the fields that its (older) header lacks.
template <class Struct>
Struct read_struct(const Struct* given, void (*init)(Struct*), std::string_view what) {
  Struct whole;
  init(&whole);
  if (given == nullptr) return whole;
  if (given->struct_size < sizeof given->struct_size) {
    fail(concat(what, ".struct_size is ", given->struct_size, "; set it by the init function"));
  }
  std::memcpy(&whole, given, std::min<size_t>(given->struct_size, sizeof whole));
  whole.struct_size = sizeof whole;
  return whole;
}

// An array of C; refuses NULL with elements, and a negative count.
template <class T>
std::vector<T> read_array(const T* values, int64_t count, std::string_view what) {
  if (count < 0 || (count > 0 && values == nullptr)) {
    fail(concat(what, " has ", count, " elements",
                values == nullptr ? " and is NULL" : "; give 0 or more"));
  }
  return count == 0 ? std::vector<T>() : std::vector<T>(values, values + count);
}

// A text with its length, or up to its NUL.
std::string_view read_text(const char* text, int64_t num_bytes, std::string_view what);

// Device "auto" is chosen for the model in `folder`.
EngineOptions read_options(const TesseraEngineOptions* given, const std::string& folder);
// Everything but the prompt.
Request read_request(const TesseraRequest& given);

// '[{"role": "user", "content": "Hello"}]'; refuses what is no list of messages.
std::vector<ChatMessage> read_messages(const char* json);

}  // namespace tessera::c_api
