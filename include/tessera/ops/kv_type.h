// KV caches by name: in which of the formats of kv_cache.h keys and values are kept.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class KvType : uint8_t {
  plain,       // as the model computes them
  e4m3,        // 8 bits, scale 1
  e5m2,        // 8 bits, scale 1
  int8,        // 8 bits and a scale a row
  uint8,       // 8 bits, a scale and a smallest value a row
  int4,        // keys by columns of 32 tokens, the newest of which stay plain; values by row
  int4_token,  // keys and values by row
};

inline constexpr KvType kAllKvTypes[] = {KvType::plain,     KvType::e4m3,  KvType::e5m2,
                                         KvType::int8,      KvType::uint8, KvType::int4,
                                         KvType::int4_token};

constexpr std::string_view name(KvType type) {
  switch (type) {
    case KvType::plain: return "plain";
    case KvType::e4m3: return "e4m3";
    case KvType::e5m2: return "e5m2";
    case KvType::int8: return "int8";
    case KvType::uint8: return "uint8";
    case KvType::int4: return "int4";
    case KvType::int4_token: return "int4_token";
  }
  return "unknown";
}

constexpr std::optional<KvType> find_kv_type(std::string_view text) {
  for (const KvType type : kAllKvTypes) {
    if (name(type) == text) return type;
  }
  return std::nullopt;
}

}  // namespace tessera
