// 2:4 sparse weights on the CPU. For both 16-bit types, magnitudes are ordered like their bits.
// SPDX-License-Identifier: MIT
#include <cstring>

#include "cpu/gemm.h"
#include "cpu/parallel.h"

namespace tessera::cpu {
namespace {

// The 16 bits of meta for 16 columns of a row: which half of which word.
struct MetaPlace {
  int64_t word;
  int shift;
};
MetaPlace meta_place(int64_t row, int64_t col, int64_t num_col_blocks) {
  const int64_t block = row / kSparseBlock * num_col_blocks + col / kSparseBlock;
  const int64_t in_row = row % kSparseBlock, g = in_row % 8, h = in_row / 16;
  const int64_t q = col % kSparseBlock / 16;
  return {block * kSparseBlock + 4 * g + 2 * h + q, in_row / 8 % 2 == 0 ? 0 : 16};
}

// The places of the two elements to keep, in order.
struct Kept {
  int first;
  int second;
};
Kept choose(const uint16_t* four) {
  const auto magnitude = [four](int i) { return four[i] & 0x7fff; };
  int largest = 0;
  for (int i = 1; i < 4; ++i) {
    if (magnitude(i) > magnitude(largest)) largest = i;
  }
  int next = largest == 0 ? 1 : 0;
  for (int i = next + 1; i < 4; ++i) {
    if (i != largest && magnitude(i) > magnitude(next)) next = i;
  }
  return largest < next ? Kept{largest, next} : Kept{next, largest};
}

// The bits for 16 columns, and their 8 kept values.
uint32_t prune_16(const uint16_t* columns, uint16_t* values) {
  uint32_t bits = 0;
  for (int four = 0; four < 4; ++four) {
    const Kept kept = choose(columns + 4 * four);
    values[2 * four] = columns[4 * four + kept.first];
    values[2 * four + 1] = columns[4 * four + kept.second];
    bits |= static_cast<uint32_t>(kept.first | kept.second << 2) << 4 * four;
  }
  return bits;
}

constexpr uint32_t kPaddingBits = 0x4444;  // places 0 and 1, four times

}  // namespace

void prune_2_4(const Prune24Args& args) {
  const int64_t n = args.w.size(0), k = args.w.size(1);
  auto* meta = args.out_meta.as<uint32_t>();
  // A block of rows at a time: the two halves of a word are of rows 8 apart.
  parallel_for(args.out_meta.size(0), k * kSparseBlock, [&](int64_t block) {
    for (int64_t row = block * kSparseBlock; row < (block + 1) * kSparseBlock; ++row) {
      for (int64_t col = 0; col < k; col += 16) {
        uint32_t bits = kPaddingBits;
        if (row < n) {
          bits = prune_16(args.w.as<uint16_t>() + row * args.w.stride(0) + col,
                          args.out_values.as<uint16_t>() + (row * k + col) / 2);
        }
        const MetaPlace at = meta_place(row, col, k / kSparseBlock);
        meta[at.word] = (meta[at.word] & ~(0xffffu << at.shift)) | bits << at.shift;
      }
    }
  });
}

void expand_2_4(const Expand24Args& args) {
  const int64_t n = args.out.size(0), k = args.out.size(1);
  const auto* meta = args.meta.as<uint32_t>();
  parallel_for(n, k, [&](int64_t row) {
    const uint16_t* values = args.values.as<uint16_t>() + row * k / 2;
    uint16_t* out = args.out.as<uint16_t>() + row * args.out.stride(0);
    std::memset(out, 0, static_cast<size_t>(k) * sizeof *out);
    for (int64_t col = 0; col < k; col += 16) {
      const MetaPlace at = meta_place(row, col, k / kSparseBlock);
      const uint32_t bits = meta[at.word] >> at.shift;
      for (int i = 0; i < 8; ++i) out[col + i / 2 * 4 + (bits >> 2 * i & 3)] = values[col / 2 + i];
    }
  });
}

void gemm_2_4(const Gemm24Args& args) {
  const Tensor dense(args.a.dtype, {args.values.size(0), args.a.size(1)});
  expand_2_4({.values = args.values, .meta = args.meta, .out = dense});
  gemm({.a = args.a, .b = dense, .out = args.out});
}

}  // namespace tessera::cpu
