// ldmatrix, stmatrix, movmatrix and mma.sync: matrices that a warp holds in registers.
//
// A matrix of 8x8 elements of 16 bits takes one register: lane l holds elements 2 (l % 4) and the
// next of row l / 4. ldmatrix and stmatrix move such matrices from and to rows of 16 bytes, whose
// addresses come from eight lanes each.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/instructions/products.h"
#include "tests/emulator/small_floats.h"

namespace tessera::emulator {
namespace {

using Matrix8 = uint16_t[8][8];

struct MatrixMove {
  Slot address;
  uint32_t offset = 0;
  bool is_transposed = false;
  std::vector<uint32_t> matrices = {};  // registers
};

void spread(const Matrix8& matrix, bool is_transposed, uint32_t* words) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int row = lane / 4, column = 2 * (lane % 4);
    const uint32_t low = is_transposed ? matrix[column][row] : matrix[row][column];
    const uint32_t high = is_transposed ? matrix[column + 1][row] : matrix[row][column + 1];
    words[lane] = high << 16 | low;
  }
}

void collect(const uint32_t* words, bool is_transposed, Matrix8& matrix) {
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const int row = lane / 4, column = 2 * (lane % 4);
    for (int i = 0; i < 2; ++i) {
      const auto value = static_cast<uint16_t>(words[lane] >> 16 * i);
      (is_transposed ? matrix[column + i][row] : matrix[row][column + i]) = value;
    }
  }
}

char* row_address(Warp& warp, const Instruction& instruction, size_t matrix, size_t row) {
  const auto& move = instruction.details<MatrixMove>();
  const uint32_t base = warp.reg<uint32_t>(move.address.at)[8 * matrix + row];
  return warp.shared(instruction, base + move.offset, 16);
}

void load_matrices(Warp& warp, const Instruction& instruction, uint32_t) {
  const auto& move = instruction.details<MatrixMove>();
  std::array<std::array<uint32_t, kWarpLanes>, 4> loaded;  // first all, as results may be addresses
  for (size_t i = 0; i < move.matrices.size(); ++i) {
    Matrix8 matrix;
    for (size_t row = 0; row < 8; ++row) {
      std::memcpy(matrix[row], row_address(warp, instruction, i, row), sizeof matrix[row]);
    }
    spread(matrix, move.is_transposed, loaded[i].data());
  }
  for (size_t i = 0; i < move.matrices.size(); ++i) {
    std::copy_n(loaded[i].begin(), kWarpLanes, warp.reg<uint32_t>(move.matrices[i]));
  }
}

void store_matrices(Warp& warp, const Instruction& instruction, uint32_t) {
  const auto& move = instruction.details<MatrixMove>();
  for (size_t i = 0; i < move.matrices.size(); ++i) {
    Matrix8 matrix;
    collect(warp.reg<uint32_t>(move.matrices[i]), move.is_transposed, matrix);
    for (size_t row = 0; row < 8; ++row) {
      std::memcpy(row_address(warp, instruction, i, row), matrix[row], sizeof matrix[row]);
    }
  }
}

// Sets the registers of a list; all lanes of the warp take part.
std::vector<uint32_t> registers_of(const Operand& operand, KernelBuilder& builder) {
  std::vector<uint32_t> registers;
  for (const std::string& name : operand.names) registers.push_back(builder.slot(name, 4).at);
  return registers;
}

void bind_matrix_move(Instruction& instruction, const Statement& statement,
                      KernelBuilder& builder) {
  if (!statement.has("m8n8") || !statement.has("b16")) return;
  const bool is_load = statement.part(0) == "ldmatrix";
  const Operand& address = statement.operand(is_load ? 1 : 0);
  MatrixMove move{.address = builder.slot(address, 4),
                  .offset = static_cast<uint32_t>(address.offset),
                  .is_transposed = statement.has("trans")};
  move.matrices = registers_of(statement.operand(is_load ? 0 : 1), builder);
  instruction.flow = Flow::converge;
  instruction.set_details(std::move(move));
  instruction.handler = is_load ? load_matrices : store_matrices;
}

void transpose(Warp& warp, const Instruction& instruction, uint32_t) {
  Matrix8 matrix;
  collect(warp.reg<uint32_t>(instruction.at[1]), /*is_transposed=*/false, matrix);
  spread(matrix, /*is_transposed=*/true, warp.reg<uint32_t>(instruction.at[0]));
}

void bind_transpose(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  use_operands(instruction, statement, builder, 2, 4);
  instruction.flow = Flow::converge;
  instruction.handler = transpose;
}

constexpr int kMmaColumns = 8;

struct Product {
  Type a_type, b_type;
  int depth = 0;
  bool is_integer = false;
  bool has_f16_sums = false;  // C and D are pairs of f16, in two registers
  std::vector<uint32_t> d{}, a{}, b{}, c{};
  uint32_t metadata = 0;  // of mma.sp: register with the positions of kept elements
  int selector = 0;       // of mma.sp: which lanes hold them
};

using TileC = float[kTileRows * kMmaColumns];

int tile_index(int lane, int i) {
  return (lane / 4 + 8 * (i / 2)) * kMmaColumns + 2 * (lane % 4) + i % 2;
}

void read_c(Warp& warp, const Product& product, TileC& d) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t* const words =
        warp.reg<uint32_t>(product.c[static_cast<size_t>(product.has_f16_sums ? i / 2 : i)]);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const uint32_t word = words[lane];
      d[tile_index(lane, i)] = product.has_f16_sums
                                   ? from_f16(static_cast<uint16_t>(word >> 16 * (i % 2)))
                                   : std::bit_cast<float>(word);
    }
  }
}

void write_d(Warp& warp, const Product& product, const TileC& d) {
  const size_t num_registers = product.d.size();
  for (size_t i = 0; i < num_registers; ++i) {
    uint32_t* const words = warp.reg<uint32_t>(product.d[i]);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const auto element = [&](size_t index) {
        return d[tile_index(lane, static_cast<int>(index))];
      };
      words[lane] = product.has_f16_sums
                        ? uint32_t{to_f16(element(2 * i + 1))} << 16 | to_f16(element(2 * i))
                        : std::bit_cast<uint32_t>(element(i));
    }
  }
}

void read_b(Warp& warp, const Product& product, float* b) {
  const int bytes = bytes_of(product.b_type);
  for (size_t i = 0; i < product.b.size(); ++i) {
    const uint32_t* const words = warp.reg<uint32_t>(product.b[i]);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      std::array<float, 4> values;
      unpack(product.b_type, words[lane], values.data());
      const int k = (4 * (lane % 4) + 16 * static_cast<int>(i)) / bytes;
      for (int j = 0; j < 4 / bytes; ++j) {
        b[(k + j) * kMmaColumns + lane / 4] = values[static_cast<size_t>(j)];
      }
    }
  }
}

// mma.sp: of each four elements of A two are kept, and two bits each tell which.
void expand(Warp& warp, const Product& product, const TileA& kept, TileA& a) {
  const uint32_t* const metadata = warp.reg<uint32_t>(product.metadata);
  for (int row = 0; row < kTileRows; ++row) {
    std::fill_n(a[row], kMaxDepth, 0.0f);
    for (int group = 0; group < product.depth / 4; ++group) {
      const int lane = row % 8 * 4 + 2 * product.selector + group / 4;
      const uint32_t positions = metadata[lane] >> (16 * (row / 8) + 4 * (group % 4));
      a[row][4 * group + static_cast<int>(positions & 3)] = kept[row][2 * group];
      a[row][4 * group + static_cast<int>(positions >> 2 & 3)] = kept[row][2 * group + 1];
    }
  }
}

template <bool kSparse>
void multiply_fragments(Warp& warp, const Instruction& instruction, uint32_t) {
  const auto& product = instruction.details<Product>();
  TileA a;
  std::array<float, kMaxDepth * kMmaColumns> b;
  TileC d;
  if constexpr (kSparse) {
    TileA kept;
    read_a(warp, product.a, product.a_type, product.depth / 2, kept);
    expand(warp, product, kept, a);
  } else {
    read_a(warp, product.a, product.a_type, product.depth, a);
  }
  read_b(warp, product, b.data());
  read_c(warp, product, d);
  if (product.is_integer) {
    multiply_integers(a, b.data(), kMmaColumns, product.depth, d);
  } else {
    multiply(a, b.data(), kMmaColumns, product.depth, d);
  }
  write_d(warp, product, d);
}

void bind_mma(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  instruction.flow = Flow::converge;
  const size_t count = statement.parts.size();
  if (count < 6) return;
  const auto a_type = parse_type(statement.part(count - 3));
  const auto b_type = parse_type(statement.part(count - 2));
  const std::string& result = statement.parts.back();
  const auto shape = std::ranges::find_if(
      statement.parts, [](const std::string& part) { return part.starts_with("m16n8k"); });
  if (shape == statement.parts.end() || !a_type || !b_type || !is_factor(*a_type) ||
      !is_factor(*b_type) || (result != "f32" && result != "s32" && result != "f16")) {
    return;
  }
  Product product{.a_type = *a_type,
                  .b_type = *b_type,
                  .depth = std::atoi(shape->c_str() + 6),
                  .is_integer = result == "s32",
                  .has_f16_sums = result == "f16"};
  const bool is_sparse = statement.part(1).starts_with("sp");
  if (is_sparse && (product.depth != 32 || bytes_of(*a_type) != 2)) return;
  if (product.depth * bytes_of(*a_type) > (is_sparse ? 64 : 32)) return;
  product.d = registers_of(statement.operand(0), builder);
  product.a = registers_of(statement.operand(1), builder);
  product.b = registers_of(statement.operand(2), builder);
  product.c = registers_of(statement.operand(3), builder);
  if (is_sparse) {
    product.metadata = builder.slot(statement.operand(4), 4).at;
    product.selector = static_cast<int>(statement.number(5));
  }
  instruction.set_details(std::move(product));
  instruction.handler = is_sparse ? multiply_fragments<true> : multiply_fragments<false>;
}

constexpr Family kFamilies[] = {{"ldmatrix", bind_matrix_move},
                                {"stmatrix", bind_matrix_move},
                                {"movmatrix", bind_transpose},
                                {"mma", bind_mma}};

}  // namespace

std::span<const Family> matrix_instructions() { return kFamilies; }

}  // namespace tessera::emulator
