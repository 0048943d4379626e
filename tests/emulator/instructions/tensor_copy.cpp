// A box is copied row by row, 16 bytes at a time. What lies outside the tensor reads as zero and is
// not written; so a tile may hang over the edge, and no kernel needs to check.
// SPDX-License-Identifier: MIT
#include "tests/emulator/instructions/tensor_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/instructions/mbarrier.h"
#include "tests/emulator/instructions/multicast.h"
#include "tests/emulator/small_floats.h"
#include "tests/emulator/tensor_map.h"

namespace tessera::emulator {
namespace {

constexpr uint32_t kPiece = 16;  // bytes that a swizzle keeps together

enum class Direction : uint8_t { to_shared, to_global, add_to_global };

template <class T, class Load, class Store>
void add(char* global, const char* shared, const Load& load, const Store& store) {
  T sum, addend;
  std::memcpy(&sum, global, sizeof sum);
  std::memcpy(&addend, shared, sizeof addend);
  sum = store(load(sum) + load(addend));
  std::memcpy(global, &sum, sizeof sum);
}

// In the type of the map, rounded once; integers wrap.
void add_element(Type type, char* global, const char* shared) {
  const auto same = [](auto value) { return value; };
  switch (type) {
    case Type::f32: return add<float>(global, shared, same, same);
    case Type::f64: return add<double>(global, shared, same, same);
    case Type::f16: return add<uint16_t>(global, shared, from_f16, to_f16<float>);
    case Type::bf16: return add<uint16_t>(global, shared, from_bf16, to_bf16);
    case Type::u64:
    case Type::s64: return add<uint64_t>(global, shared, same, same);
    default: return add<uint32_t>(global, shared, same, same);
  }
}

using Coordinates = std::array<int64_t, TensorMap::kMaxRank>;

struct TensorCopy {
  Direction direction;
  int rank = 0;
  Slot map{}, shared{}, barrier{};
  Slot mask{};  // of a multicast; bytes 0: none
  std::array<Slot, TensorMap::kMaxRank> coordinates{};
};

// One copy under way.
struct BoxCopy {
  Warp* warp;
  const Instruction* instruction;
  Direction direction;
  TensorMap map;
  Coordinates first;        // of the box
  uint32_t shared_address;  // with the block in its upper bits

  void run() const;

 private:
  struct Row {
    int64_t address;  // in global memory, of the column 0
    bool is_inside;
  };
  Row row_at(uint64_t index) const;
  void copy_piece(const Row& row, uint32_t column_bytes, char* shared) const;
  void copy_element(char* global, char* shared) const;
};

BoxCopy::Row BoxCopy::row_at(uint64_t index) const {
  Row row{static_cast<int64_t>(map.base), true};
  for (size_t i = 1; i < map.rank; ++i) {
    const int64_t at = first[i] + static_cast<int64_t>(index % map.box[i]);
    index /= map.box[i];
    row.is_inside &= at >= 0 && at < static_cast<int64_t>(map.dims[i]);
    row.address += at * static_cast<int64_t>(map.strides[i - 1]);
  }
  return row;
}

void BoxCopy::copy_element(char* global, char* shared) const {
  switch (direction) {
    case Direction::to_shared: std::memcpy(shared, global, map.element_bytes); break;
    case Direction::to_global: std::memcpy(global, shared, map.element_bytes); break;
    case Direction::add_to_global: add_element(map.type, global, shared);
  }
}

void BoxCopy::copy_piece(const Row& row, uint32_t column_bytes, char* shared) const {
  const uint32_t bytes = map.element_bytes;
  if (direction == Direction::to_shared) std::memset(shared, 0, kPiece);
  if (!row.is_inside) return;
  // The columns of this piece that are inside the tensor.
  const int64_t column = first[0] + column_bytes / bytes;
  const int64_t begin = std::max<int64_t>(column, 0);
  const int64_t end = std::min<int64_t>(column + kPiece / bytes, static_cast<int64_t>(map.dims[0]));
  if (begin >= end) return;
  const auto address = static_cast<uint64_t>(row.address + begin * bytes);
  warp->check_global(*instruction, address, static_cast<uint64_t>(end - begin) * bytes);
  char* global = reinterpret_cast<char*>(address);
  shared += (begin - column) * bytes;
  for (int64_t i = begin; i < end; ++i, global += bytes, shared += bytes) {
    copy_element(global, shared);
  }
}

void BoxCopy::run() const {
  const uint32_t row_bytes = map.box[0] * map.element_bytes;
  uint32_t address = shared_address;
  for (uint64_t index = 0; index < map.box_bytes() / row_bytes; ++index) {
    const Row row = row_at(index);
    for (uint32_t column = 0; column < row_bytes; column += kPiece) {
      const uint32_t to = swizzled(address + column, map.swizzle);
      copy_piece(row, column, warp->shared(*instruction, to, kPiece));
    }
    address += row_bytes;
  }
}

TensorMap map_at(Warp& warp, const Instruction& instruction, const TensorCopy& copy, int lane) {
  constexpr uint64_t kAlign = 64;
  const uint64_t address = warp.reg<uint64_t>(copy.map.at)[lane];
  if (address % kAlign != 0) {
    warp.fault(instruction, FaultKind::misaligned_address, "a tensor map not aligned to 64 bytes");
  }
  warp.check_global(instruction, address, sizeof(TensorMap));
  TensorMap map;
  std::memcpy(&map, reinterpret_cast<const void*>(address), sizeof map);
  if (map.rank != copy.rank) {
    warp.fault(instruction, FaultKind::launch_failure,
               "a tensor map of rank " + std::to_string(map.rank));
  }
  return map;
}

void copy_box(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  constexpr uint32_t kSharedAlign = 128;
  const auto& copy = instruction.details<TensorCopy>();
  for_each_lane(lanes, [&](int lane) {
    BoxCopy box{.warp = &warp,
                .instruction = &instruction,
                .direction = copy.direction,
                .map = map_at(warp, instruction, copy, lane),
                .first = {},
                .shared_address = warp.reg<uint32_t>(copy.shared.at)[lane]};
    for (size_t i = 0; i < box.map.rank; ++i) {
      box.first[i] = warp.reg<int32_t>(copy.coordinates[i].at)[lane];
    }
    if (box.shared_address % kSharedAlign != 0) {
      warp.fault(instruction, FaultKind::misaligned_address,
                 "a box in shared memory not aligned to 128 bytes");
    }
    if (copy.direction != Direction::to_shared) {
      warp.issue_copy([box] { box.run(); }, /*is_of_bulk_group=*/true);
      return;
    }
    const bool is_multicast = copy.mask.bytes != 0;
    const auto mask = static_cast<uint32_t>(is_multicast ? warp.read(copy.mask, lane) : 0);
    for_each_destination(warp, box.shared_address, warp.reg<uint32_t>(copy.barrier.at)[lane],
                         is_multicast, mask, [&](uint32_t address, uint32_t barrier_address) {
                           box.shared_address = address;
                           MBarrier barrier = mbarrier_at(warp, instruction, barrier_address);
                           warp.issue_copy(
                               [box, barrier]() mutable {
                                 box.run();
                                 barrier.complete_bytes(box.map.box_bytes());
                               },
                               /*is_of_bulk_group=*/false);
                         });
  });
}

}  // namespace

void bind_tensor_copy(Instruction& instruction, const Statement& statement,
                      KernelBuilder& builder) {
  TensorCopy copy{.direction = Direction::to_global};
  const bool reduces = statement.part(1) == "reduce";
  if (reduces) copy.direction = Direction::add_to_global;
  if (reduces && !statement.has("add")) return;
  size_t next = 0;
  const bool is_load = statement.part(5).starts_with("shared");
  if (is_load) {
    copy.direction = Direction::to_shared;
    copy.shared = builder.slot(statement.operand(next++), 4);
  }
  if (statement.has("im2col") || statement.has("gather4")) return;
  copy.map = builder.slot(statement.operand(next++), 8);
  const Operand& coordinates = statement.operand(next++);
  copy.rank = static_cast<int>(coordinates.names.size());
  for (size_t i = 0; i < coordinates.names.size(); ++i) {
    copy.coordinates[i] = builder.slot(coordinates.names[i], 4);
  }
  const Slot last = builder.slot(statement.operand(next++), 4);
  (is_load ? copy.barrier : copy.shared) = last;
  if (statement.has("multicast::cluster")) {
    copy.mask = builder.slot(statement.operand(next++), 2);
  }
  for (const Operand& operand : statement.operands) {
    if (operand.offset != 0) return;
  }
  instruction.set_details(copy);
  instruction.handler = copy_box;
}

}  // namespace tessera::emulator
