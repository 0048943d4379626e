// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/kv_format.h"

namespace tessera {
using KvType = KvFormat;
inline constexpr KvType kAllKvTypes[] = {KvType::plain,     KvType::e4m3,  KvType::e5m2,
                                         KvType::int8,      KvType::uint8, KvType::int4,
                                         KvType::int4_token};
constexpr std::optional<KvType> find_kv_type(std::string_view text) { return find_kv_format(text); }
}  // namespace tessera
