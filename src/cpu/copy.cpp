// Strided copies on the CPU: axes are merged where possible, then copied in tiles. Conversions go
// row by row.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "cpu/elementwise.h"
#include "cpu/parallel.h"
#include "tessera/core/convert.h"

namespace tessera::cpu {
namespace {

struct Axis {
  int64_t size = 1;
  int64_t from_stride = 0;
  int64_t to_stride = 0;
};

// The axes of a copy, the one in which `to` is densest last.
struct Axes {
  std::array<Axis, kMaxRank> axis{};
  int count = 0;
};

// Removes axes of size 1, orders the rest by the stride of `to`, and merges neighbours that one
// stride walks on both sides.
Axes fold_axes(const TensorView& from, const TensorView& to) {
  std::array<Axis, kMaxRank> all{};
  int count = 0;
  for (int d = 0; d < from.rank; ++d) {
    if (from.size(d) == 1) continue;
    all[static_cast<size_t>(count++)] = {from.size(d), from.stride(d), to.stride(d)};
  }
  std::stable_sort(all.begin(), all.begin() + count, [](const Axis& a, const Axis& b) {
    return std::abs(a.to_stride) > std::abs(b.to_stride);
  });
  Axes folded;
  for (int d = 0; d < count; ++d) {
    const Axis& next = all[static_cast<size_t>(d)];
    if (folded.count > 0) {
      Axis& last = folded.axis[static_cast<size_t>(folded.count - 1)];
      if (last.from_stride == next.from_stride * next.size &&
          last.to_stride == next.to_stride * next.size) {
        last = {last.size * next.size, next.from_stride, next.to_stride};
        continue;
      }
    }
    folded.axis[static_cast<size_t>(folded.count++)] = next;
  }
  return folded;
}

template <class Bits>
void copy_tile(const Bits* from, Bits* to, const Axis& outer, const Axis& inner) {
  for (int64_t j = 0; j < outer.size; ++j) {
    const Bits* source = from + j * outer.from_stride;
    Bits* target = to + j * outer.to_stride;
    if (inner.from_stride == 1 && inner.to_stride == 1) {
      std::memcpy(target, source, static_cast<size_t>(inner.size) * sizeof(Bits));
      continue;
    }
    for (int64_t i = 0; i < inner.size; ++i) {
      target[i * inner.to_stride] = source[i * inner.from_stride];
    }
  }
}

// Removes from `axes`, and returns, the one in which `from` is densest: the other side of a tile.
Axis take_outer(Axes& axes) {
  if (axes.count == 0) return {};
  const auto begin = axes.axis.begin();
  const auto end = begin + axes.count;
  const auto densest = std::min_element(begin, end, [](const Axis& a, const Axis& b) {
    return std::abs(a.from_stride) < std::abs(b.from_stride);
  });
  const Axis outer = *densest;
  std::copy(densest + 1, end, densest);
  --axes.count;
  return outer;
}

template <class Bits>
void copy_bits(const CopyArgs& args) {
  // A transposing tile of 32 x 32 keeps the lines of both sides in the first-level cache; a run
  // that is dense on both sides only needs cutting so that threads can share it.
  constexpr int64_t kTile = 32;
  constexpr int64_t kRun = 1 << 16;
  Axes axes = fold_axes(args.x, args.out);
  const Axis inner = axes.count > 0 ? axes.axis[static_cast<size_t>(--axes.count)] : Axis{};
  const Axis outer = take_outer(axes);
  const int64_t inner_step = inner.from_stride == inner.to_stride ? kRun : kTile;
  const int64_t inner_tiles = (inner.size + inner_step - 1) / inner_step;
  const int64_t outer_tiles = (outer.size + kTile - 1) / kTile;
  int64_t num_blocks = 1;
  for (int d = 0; d < axes.count; ++d) num_blocks *= axes.axis[static_cast<size_t>(d)].size;
  const int64_t tile_elements = std::min(inner.size, inner_step) * std::min(outer.size, kTile);
  parallel_for(num_blocks * outer_tiles * inner_tiles, tile_elements, [&](int64_t item) {
    const int64_t i = item % inner_tiles * inner_step;
    const int64_t j = item / inner_tiles % outer_tiles * kTile;
    int64_t from = i * inner.from_stride + j * outer.from_stride;
    int64_t to = i * inner.to_stride + j * outer.to_stride;
    int64_t block = item / inner_tiles / outer_tiles;
    for (int d = axes.count - 1; d >= 0; --d) {
      const Axis& axis = axes.axis[static_cast<size_t>(d)];
      from += block % axis.size * axis.from_stride;
      to += block % axis.size * axis.to_stride;
      block /= axis.size;
    }
    copy_tile(args.x.as<Bits>() + from, args.out.as<Bits>() + to,
              {std::min(kTile, outer.size - j), outer.from_stride, outer.to_stride},
              {std::min(inner_step, inner.size - i), inner.from_stride, inner.to_stride});
  });
}

void convert_rows(const CopyArgs& args) {
  constexpr int64_t kRun = 1 << 14;  // cut, so that threads can share one long row
  const Rows x = as_rows(args.x, "copy: x"), out = as_rows(args.out, "copy: out");
  const int64_t num_runs = (x.num_cols + kRun - 1) / kRun;
  parallel_for(x.num_rows * num_runs, std::min(kRun, x.num_cols), [&](int64_t item) {
    const int64_t row = item / num_runs, col = item % num_runs * kRun;
    const int64_t count = std::min(kRun, x.num_cols - col);
    const auto run_of = [&](const TensorView& view, int64_t first) {
      return TensorView::contiguous(view.as<std::byte>() + storage_bytes(view.dtype, first),
                                    view.dtype, {count});
    };
    convert(run_of(args.x, row * x.row_stride + col), run_of(args.out, row * out.row_stride + col));
  });
}

}  // namespace

void copy(const CopyArgs& args) {
  if (args.x.num_elements() == 0) return;
  if (args.x.dtype != args.out.dtype) return convert_rows(args);
  switch (bit_width(args.x.dtype)) {
    case 8: return copy_bits<uint8_t>(args);
    case 16: return copy_bits<uint16_t>(args);
    case 32: return copy_bits<uint32_t>(args);
    default: return copy_bits<uint64_t>(args);
  }
}

}  // namespace tessera::cpu
