// Element types: names, widths and the C++ types they stand for.
// SPDX-License-Identifier: MIT
#include "tessera/core/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <type_traits>

#include "core/element.h"

namespace tessera {
namespace {

TEST(DType, NamesAreDistinctAndMatchTheEnumerators) {
  std::set<std::string_view> names;
  for (const DType dtype : kAllDTypes) names.insert(name(dtype));
  EXPECT_EQ(names.size(), std::size(kAllDTypes));
  EXPECT_EQ(name(DType::f32), "f32");
  EXPECT_EQ(name(DType::e5m2), "e5m2");
  EXPECT_EQ(name(DType::i4), "i4");
  EXPECT_EQ(name(DType::i64), "i64");
}

TEST(DType, StorageCountsBytesAndRoundsAnOddI4Up) {
  EXPECT_EQ(storage_bytes(DType::i4, 0), 0);
  EXPECT_EQ(storage_bytes(DType::i4, 3), 2);
  EXPECT_EQ(storage_bytes(DType::i4, 4), 2);
  EXPECT_EQ(storage_bytes(DType::bf16, 3), 6);
  EXPECT_EQ(storage_bytes(DType::i64, 2), 16);
}

TEST(DType, EveryStorageTypeHasItsDTypeAndWidth) {
  for (const DType dtype : kAllDTypes) {
    with_storage(dtype, [&]<class T>(std::type_identity<T>) {
      EXPECT_EQ(dtype_of<T>, dtype) << name(dtype);
      if (dtype != DType::i4) {
        EXPECT_EQ(static_cast<int>(8 * sizeof(T)), bit_width(dtype)) << name(dtype);
      }
    });
  }
}

TEST(Elements, NegativeIndicesOfI4ReachTheBytesBefore) {
  uint8_t bytes[2] = {0x21, 0x43};
  EXPECT_EQ(read_element<I4x2>(bytes + 1, -1), 2);
  EXPECT_EQ(read_element<I4x2>(bytes + 1, -2), 1);
  write_i4(bytes + 1, -1, -3);
  EXPECT_EQ(bytes[0], 0xd1);
}

}  // namespace
}  // namespace tessera
