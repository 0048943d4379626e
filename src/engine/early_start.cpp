// The threads that make a GPU ready and read the tokenizer.
// SPDX-License-Identifier: MIT
#include "engine/early_start.h"

#include <chrono>
#include <system_error>

#include "core/text.h"
#include "model/gguf/gguf_model.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

// On a thread of its own; on the caller's, when it asks for the result, if there is none to be had.
template <class Make>
auto begin(Make make) {
  const auto timed = [make = std::move(make)] {
    const auto start = std::chrono::steady_clock::now();
    auto made = make();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return std::pair(std::move(made), took.count());
  };
  try {
    return std::async(std::launch::async, timed);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, timed);
  }
}

}  // namespace

void EarlyStart::begin_device(Device device) {
  if (device.is_cpu() || carrier_.valid()) return;
  device_ = device;
  carrier_ = begin([device]() -> std::shared_ptr<model::Carrier> {
    try {
      if (device.index >= num_cuda_devices()) return nullptr;
      return model::make_carrier(device);
    } catch (const Error&) {
      return nullptr;
    }
  });
}

void EarlyStart::begin_tokenizer(const std::filesystem::path& folder) {
  if (!tokenizer_.valid()) tokenizer_ = begin([folder] { return read_tokenizer(folder); });
}

std::shared_ptr<model::Carrier> EarlyStart::take_carrier(Device device) {
  if (!carrier_.valid()) return nullptr;
  auto [carrier, seconds] = carrier_.get();
  device_seconds_ = seconds;
  return device == device_ ? carrier : nullptr;
}

std::optional<Tokenizer> EarlyStart::take_tokenizer() {
  if (!tokenizer_.valid()) return std::nullopt;
  auto [tokenizer, seconds] = tokenizer_.get();
  tokenizer_seconds_ = seconds;
  return std::move(tokenizer);
}

Tokenizer read_tokenizer(const std::filesystem::path& folder) {
  if (model::is_gguf(folder)) {
    const model::GgufFile gguf = model::GgufFile::parse(model::WeightFile(folder));
    return Tokenizer::parse(model::gguf_tokenizer_json(gguf), gguf.origin());
  }
  const std::filesystem::path file = folder / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    fail(concat("engine: ", shown_path(folder.native()),
                " has no tokenizer.json; give a folder with config.json, tokenizer.json and "
                "safetensors"));
  }
  return Tokenizer::load(file);
}

ChatSettings read_chat_settings(const std::filesystem::path& folder) {
  if (!model::is_gguf(folder)) return load_chat_settings(folder);
  const model::GgufFile gguf = model::GgufFile::parse(model::WeightFile(folder));
  const auto token = [&](std::string_view key) -> std::string {
    const auto id = gguf.whole(key);
    const std::vector<std::string>* tokens = gguf.texts("tokenizer.ggml.tokens");
    if (!id || tokens == nullptr || *id < 0 || *id >= std::ssize(*tokens)) return {};
    return (*tokens)[static_cast<size_t>(*id)];
  };
  return {.template_source = gguf.text("tokenizer.chat_template"),
          .bos_token = token("tokenizer.ggml.bos_token_id"),
          .eos_token = token("tokenizer.ggml.eos_token_id")};
}

}  // namespace tessera::engine
