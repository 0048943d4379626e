// Numbers that stand beside weights.
// SPDX-License-Identifier: MIT
#include "model/formats/kv_scales.h"

#include <cmath>

#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {

std::optional<float> read_number(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* stored = checkpoint.find(name);
  if (stored == nullptr) return std::nullopt;
  const bool is_float = stored->dtype && is_float16_or_32(*stored->dtype);
  if (!is_float || stored->num_bytes != storage_bytes(*stored->dtype, 1)) {
    fail(concat("checkpoint: tensor '", shown(name), "' is ", stored->type, " of ",
                stored->num_bytes, " bytes; it must be one F32, F16 or BF16 number"));
  }
  std::byte bytes[sizeof(float)];
  stored->file->read(stored->begin, std::span(bytes).first(static_cast<size_t>(stored->num_bytes)));
  float value = 0;
  convert(TensorView::contiguous(bytes, *stored->dtype, {1}),
          TensorView::contiguous(&value, DType::f32, {1}));
  return value;
}

std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint, int64_t num_layers) {
  std::vector<KvScale> scales(static_cast<size_t>(num_layers));
  bool has_any = false;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (const std::string which : {"k", "v"}) {
      const std::string scope = concat("model.layers.", layer, ".self_attn.");
      for (const std::string& name :
           {scope + which + "_scale", scope + which + "_proj." + which + "_scale",
            scope + which + "_proj.output_scale"}) {
        const std::optional<float> scale = read_number(checkpoint, name);
        if (!scale) continue;
        if (!std::isfinite(*scale) || *scale <= 0.0f) {
          fail(concat("checkpoint: tensor '", shown(name), "' is ", *scale,
                      "; a scale must be finite and above 0"));
        }
        KvScale& of_layer = scales[static_cast<size_t>(layer)];
        (which == "k" ? of_layer.k : of_layer.v) = *scale;
        has_any = true;
        break;
      }
    }
  }
  if (!has_any) scales.clear();
  return scales;
}

}  // namespace tessera::model
