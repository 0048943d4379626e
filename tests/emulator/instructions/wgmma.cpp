// wgmma: products of the four warps of a warpgroup, with operands in shared memory.
//
// A descriptor of 64 bits says where a matrix lies. Its elements come in core matrices of eight
// rows of 16 bytes; or, swizzled, of 32, 64 or 128. `stride` leads from eight rows to the next
// eight, and `leading` along the row to the next core matrix:
//
//   bits 0-13   start address / 16        bits 32-45  stride / 16
//   bits 16-29  leading / 16              bits 62-63  swizzle: none, 128, 64, 32 bytes
//
// Each warp multiplies its 16 of the 64 rows when it issues the instruction. The products of a
// warpgroup are one, so a wait returns only when all four warps have issued theirs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/instructions/products.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/tensor_map.h"

namespace tessera::emulator {
namespace {

constexpr int kWarpsOfGroup = 4;
constexpr int kOperandBytes = 32;  // of k, in one instruction
constexpr uint32_t kPiece = 16;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Descriptor {
  uint32_t start, leading, stride;
  Swizzle swizzle;
  bool is_mn_major;  // elements of a column are neighbours, instead of those of a row
};

Descriptor decode(uint64_t bits, bool is_mn_major) {
  constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::bytes128, Swizzle::bytes64,
                                   Swizzle::bytes32};
  const auto field = [&](int shift) { return static_cast<uint32_t>(bits >> shift & 0x3fff) << 4; };
  return {field(0), field(16), field(32), kSwizzles[bits >> 62], is_mn_major};
}

// Where 16 bytes lie: those that begin at byte `inner` of line `outer`. A line is a row of the
// matrix, or, where columns are contiguous, a column.
uint32_t piece_address(const Descriptor& matrix, uint32_t outer, uint32_t inner) {
  const uint32_t span = span_of(matrix.swizzle);
  uint32_t across = inner / span * matrix.leading, down = outer / 8 * matrix.stride;
  if (matrix.swizzle == Swizzle::none && matrix.is_mn_major) {
    across = inner / span * matrix.stride;
    down = outer / 8 * matrix.leading;
  } else if (matrix.swizzle != Swizzle::none && !matrix.is_mn_major) {
    across = inner / span * span;  // a row of k is never longer than the swizzle's
  }
  return swizzled(matrix.start + down + outer % 8 * span + across + inner % span, matrix.swizzle);
}

// The elements of rows [first, first + rows), all k of the instruction: put(row, k, value).
template <class Put>
void read_matrix(const Warp& warp, const Descriptor& matrix, Type type, int first, int rows,
                 const Put& put) {
  const int bytes = bytes_of(type), depth = kOperandBytes / bytes;
  const int per_piece = static_cast<int>(kPiece) / bytes;
  const int num_lines = matrix.is_mn_major ? depth : rows;
  const int line_length = matrix.is_mn_major ? rows : depth;
  const std::vector<char>& shared = warp.block().shared;
  for (int line = 0; line < num_lines; ++line) {
    for (int i = 0; i < line_length; i += per_piece) {
      const int outer = matrix.is_mn_major ? line : first + line;
      const int inner = (matrix.is_mn_major ? first + i : i) * bytes;
      const uint32_t at =
          piece_address(matrix, static_cast<uint32_t>(outer), static_cast<uint32_t>(inner));
      float values[kPiece];
      std::fill_n(values, kPiece, is_integer(type) ? 0.0f : kNan);  // beyond the block
      if (at + kPiece <= shared.size()) {
        for (uint32_t word = 0; word < kPiece / 4; ++word) {
          uint32_t bits;
          std::memcpy(&bits, shared.data() + at + 4 * word, 4);
          unpack(type, bits, values + static_cast<int>(word) * 4 / bytes);
        }
      }
      for (int j = 0; j < per_piece; ++j) {
        if (matrix.is_mn_major) {
          put(i + j, line, values[j]);
        } else {
          put(line, i + j, values[j]);
        }
      }
    }
  }
}

struct WarpgroupProduct {
  Type a_type, b_type;
  int columns = 0;
  bool is_integer = false;
  bool negates_a = false, negates_b = false;
  bool is_a_mn_major = false, is_b_mn_major = false;
  std::vector<uint32_t> d = {};
  std::vector<uint32_t> a = {};  // registers; empty: in shared memory
  uint32_t a_descriptor = 0, b_descriptor = 0;
  uint32_t accumulates = 0;  // predicate: whether D is added
};

// Register i of a lane's part of D is element (row, column) of the warp's 16 rows.
int d_index(int lane, int i, int columns) {
  return (lane / 4 + 8 * (i % 4 / 2)) * columns + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
}

void multiply_group(Warp& warp, const Instruction& instruction, uint32_t) {
  const auto& product = instruction.details<WarpgroupProduct>();
  const int columns = product.columns, depth = kOperandBytes / bytes_of(product.a_type);
  TileA a;
  thread_local float b[kMaxDepth * kMaxColumns], d[kTileRows * kMaxColumns];
  if (product.a.empty()) {
    const uint64_t bits = warp.reg<uint64_t>(product.a_descriptor)[0];
    read_matrix(warp, decode(bits, product.is_a_mn_major), product.a_type,
                warp.index() % kWarpsOfGroup * kTileRows, kTileRows,
                [&](int row, int k, float value) { a[row][k] = value; });
  } else {
    read_a(warp, product.a, product.a_type, depth, a);
  }
  const uint64_t bits = warp.reg<uint64_t>(product.b_descriptor)[0];
  read_matrix(warp, decode(bits, product.is_b_mn_major), product.b_type, 0, columns,
              [&](int row, int k, float value) { b[k * columns + row] = value; });
  if (product.negates_a) {
    for (auto& row : a) std::transform(row, row + depth, row, std::negate<>{});
  }
  if (product.negates_b) std::transform(b, b + columns * depth, b, std::negate<>{});
  const bool accumulates = warp.predicate(product.accumulates) != 0;
  const int num_registers = columns / 2;
  for (int i = 0; i < num_registers; ++i) {
    const float* const values = warp.reg<float>(product.d[static_cast<size_t>(i)]);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      d[d_index(lane, i, columns)] = accumulates ? values[lane] : 0.0f;
    }
  }
  if (product.is_integer) {
    multiply_integers(a, b, columns, depth, d);
  } else {
    multiply(a, b, columns, depth, d);
  }
  for (int i = 0; i < num_registers; ++i) {
    float* const values = warp.reg<float>(product.d[static_cast<size_t>(i)]);
    for (int lane = 0; lane < kWarpLanes; ++lane) values[lane] = d[d_index(lane, i, columns)];
  }
}

struct Groups {
  int num_in_flight;
};

void wait_for_group(Warp& warp, const Instruction& instruction, uint32_t) {
  const int needed = warp.num_wgmma_commits - instruction.details<Groups>().num_in_flight;
  const int first = warp.index() / kWarpsOfGroup * kWarpsOfGroup;
  const auto& warps = warp.block().warps;
  const int last = std::min(first + kWarpsOfGroup, static_cast<int>(warps.size()));
  for (int i = first; i < last; ++i) {
    const Warp& other = *warps[static_cast<size_t>(i)];
    if (!other.is_done() && other.num_wgmma_commits < needed) return warp.repeat();
  }
}

// The constants behind the predicate: signs of A and B, then which of them are MN-major.
void bind_constants(const Statement& statement, WarpgroupProduct& product) {
  const auto constant = [&](size_t index) {
    return index < statement.operands.size() ? statement.number(index) : 0;
  };
  product.negates_a = constant(4) == -1;
  product.negates_b = constant(5) == -1;
  if (product.a.empty()) {
    product.is_a_mn_major = constant(6) != 0;
    product.is_b_mn_major = constant(7) != 0;
  } else {
    product.is_b_mn_major = constant(6) != 0;
  }
}

void bind_product(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const size_t count = statement.parts.size();
  const std::string& result = statement.part(count - 3);
  const auto a_type = parse_type(statement.part(count - 2));
  const auto b_type = parse_type(statement.part(count - 1));
  const auto shape = std::ranges::find_if(
      statement.parts, [](const std::string& part) { return part.starts_with("m64n"); });
  if (shape == statement.parts.end() || !a_type || !b_type || !is_factor(*a_type) ||
      !is_factor(*b_type) || (result != "f32" && result != "s32")) {
    return;
  }
  WarpgroupProduct product{.a_type = *a_type,
                           .b_type = *b_type,
                           .columns = std::atoi(shape->c_str() + 4),
                           .is_integer = result == "s32"};
  for (const std::string& name : statement.operand(0).names) {
    product.d.push_back(builder.slot(name, 4).at);
  }
  if (statement.operand(1).is_list) {
    for (const std::string& name : statement.operand(1).names) {
      product.a.push_back(builder.slot(name, 4).at);
    }
  } else {
    product.a_descriptor = builder.slot(statement.operand(1), 8).at;
  }
  product.b_descriptor = builder.slot(statement.operand(2), 8).at;
  product.accumulates = builder.slot(statement.operand(3), 1).at;
  bind_constants(statement, product);
  instruction.set_details(std::move(product));
  instruction.handler = multiply_group;
}

void bind_wgmma(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  instruction.flow = Flow::converge;
  const std::string& kind = statement.part(1);
  if (kind == "mma_async") {
    bind_product(instruction, statement, builder);
  } else if (kind == "fence") {
    instruction.handler = [](Warp&, const Instruction&, uint32_t) {};
  } else if (kind == "commit_group") {
    instruction.handler = [](Warp& warp, const Instruction&, uint32_t) {
      ++warp.num_wgmma_commits;
    };
  } else if (kind == "wait_group") {
    instruction.set_details(Groups{static_cast<int>(statement.number(0))});
    instruction.handler = wait_for_group;
  }
}

constexpr Family kFamilies[] = {{"wgmma", bind_wgmma}};

}  // namespace

std::span<const Family> wgmma_instructions() { return kFamilies; }

}  // namespace tessera::emulator
