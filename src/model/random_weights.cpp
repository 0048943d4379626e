// Random weights: a hash of each element's place, cheap enough to fill an 8B model in seconds.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <string_view>

#include "core/element.h"
#include "model/weight_source.h"
#include "tessera/core/convert.h"

namespace tessera::model {
namespace {

// A mixing of 32 bits in which every output bit depends on every input bit; it vectorises.
constexpr uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of the four bytes, centred: near normal within 3.45 deviations, and its deviation.
constexpr float centred_byte_sum(uint32_t x) {
  const uint32_t pairs = (x & 0x00ff00ffu) + ((x >> 8) & 0x00ff00ffu);
  return static_cast<float>(static_cast<int32_t>((pairs & 0xffffu) + (pairs >> 16)) - 510);
}
constexpr float kByteSumDeviation = 147.79f;  // sqrt(4 (256^2 - 1) / 12)

uint32_t hash_of(std::string_view text, uint64_t seed) {
  auto hash = static_cast<uint32_t>(seed ^ (seed >> 32));
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c)) + 0x9e3779b9u;
  return hash;
}

class RandomSource final : public WeightSource {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}

  DType dtype_of(const TensorSpec&) const override { return DType::f32; }

  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
    const bool is_norm = spec.is_vector && spec.name.ends_with("norm.weight");
    const auto width = static_cast<float>(spec.is_vector ? spec.num_rows : spec.num_cols);
    const float scale = 1.0f / (std::sqrt(width) * kByteSumDeviation);
    const uint32_t key = hash_of(spec.name, seed_);
    with_storage(to.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) {
        for (int64_t i = 0; i < to.size(0); ++i) {
          T* out = to.as<T>() + i * to.stride(0);
          const uint32_t row_key = mix(key ^ mix(static_cast<uint32_t>(row + i)));
          const auto first = static_cast<uint32_t>(col);
          for (int64_t j = 0; j < to.size(1); ++j) {
            const uint32_t bits = mix(row_key ^ (first + static_cast<uint32_t>(j)));
            out[j] = from_float<T>(is_norm ? 1.0f : centred_byte_sum(bits) * scale);
          }
        }
      }
    });
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<WeightSource> make_random_source(uint64_t seed) {
  return std::make_unique<RandomSource>(seed);
}

}  // namespace tessera::model
