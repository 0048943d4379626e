// What takes long when a model is loaded, but needs neither its options nor its weights, begun
// early on threads of its own: the GPU's context with the pinned buffers that weights pass through,
// and the tokenizer.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "model/weight_upload.h"
#include "tessera/core/device.h"
#include "tessera/text/chat_template.h"
#include "tessera/text/tokenizer.h"

namespace tessera::engine {

class EarlyStart {
 public:
  EarlyStart() = default;  // begins nothing

  // Begins to make a GPU ready. Nothing happens for the CPU, or for a GPU that does not exist;
  // other failures are left to whatever uses the GPU next.
  void begin_device(Device device);
  // Begins to read FOLDER/tokenizer.json.
  void begin_tokenizer(const std::filesystem::path& folder);

  // Both wait for what was begun. The buffers are null if they were not begun for this device.
  std::shared_ptr<model::Carrier> take_carrier(Device device);
  // None if it was not begun. Throws what reading it threw.
  std::optional<Tokenizer> take_tokenizer();

  // How long each took, once it was taken; 0 if it was not begun.
  double device_seconds() const { return device_seconds_; }
  double tokenizer_seconds() const { return tokenizer_seconds_; }

 private:
  template <class T>
  using Timed = std::future<std::pair<T, double>>;

  Device device_ = {};
  Timed<std::shared_ptr<model::Carrier>> carrier_;
  Timed<Tokenizer> tokenizer_;
  double device_seconds_ = 0;
  double tokenizer_seconds_ = 0;
};

// The tokenizer of a model's folder, or of a GGUF file. Refuses a folder without one.
Tokenizer read_tokenizer(const std::filesystem::path& folder);
// The chat template of the same, and the tokens it may name.
ChatSettings read_chat_settings(const std::filesystem::path& folder);

}  // namespace tessera::engine
