// Fuzzes the loader of quantised layers: a quantization_config and a safetensors file with the
// tensors of one layer are refused, or give values for every element.
// SPDX-License-Identifier: MIT
//
// An input is two bytes, which choose the size of the weight, the configuration up to a newline,
// and the file.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz/fuzz.h"
#include "model/bounded_json.h"
#include "model/config_fields.h"
#include "model/formats/kv_scales.h"
#include "model/formats/stored_layer.h"
#include "tessera/core/error.h"

namespace {

// The loader reads files, so each input is written to one; in memory where the system has that.
std::filesystem::path scratch_file() {
  const std::filesystem::path memory = "/dev/shm";
  const auto folder =
      std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
  return folder / ("tessera_fuzz_" + std::to_string(::getpid()) + ".safetensors");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size < 2) return 0;
  const int64_t n = 1 + data[0] % 64, k = 8 * (1 + data[1] % 32);
  const std::string_view text = fuzz::as_text(data + 2, size - 2);
  const size_t end = std::min(text.find('\n'), text.size());
  static const std::filesystem::path path = scratch_file();
  try {
    const nlohmann::json config = model::parse_json(text.substr(0, end), "input");
    if (!config.is_object()) return 0;
    const auto formats = model::StoredFormats::parse(model::Fields(config, "input: "));
    const std::string_view file = text.substr(std::min(end + 1, text.size()));
    std::ofstream(path, std::ios::binary) << file;
    const model::Checkpoint checkpoint = model::Checkpoint::open_file(path);
    std::filesystem::remove(path);  // it stays open
    for (const model::KvScale& scale : model::read_kv_scales(checkpoint, 2)) {
      fuzz::require(scale.k > 0 && scale.v > 0, "scales are above 0");
    }
    const model::StoredFormat& format = formats->of("layer");
    if (format.storage == model::Storage::values) return 0;
    const model::StoredLayer layer(checkpoint, "layer", format, n, k);
    const Tensor values(DType::f32, {n, k});
    layer.read_values(0, 0, values);
    if (const auto form = model::form_of(format, k)) {
      const model::DecodedRows rows = layer.decode(0, n);
      fuzz::require(!form->has_order || std::ssize(layer.order()) == k, "an order has all columns");
    }
  } catch (const Error&) {
    // Refused, as a malformed file should be.
  }
  return 0;
}
