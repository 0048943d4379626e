// What a warp knows: its registers, the special ones among them, and the memory it may touch.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cstdio>

#include "tests/emulator/launch.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {
namespace {

// What an H200 has.
constexpr uint64_t kNumSms = 132;

Extent thread_of(const Warp& warp, uint32_t lane) {
  const Extent& block = warp.launch().block;
  const uint32_t thread = static_cast<uint32_t>(warp.index()) * kWarpLanes + lane;
  return {thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1]};
}

// Lanes below `lane`.
uint64_t below(uint32_t lane) { return (uint64_t{1} << lane) - 1; }

constexpr SpecialRegister kSpecialRegisters[] = {
    {"%tid.x", [](const Warp& w, uint32_t lane) -> uint64_t { return thread_of(w, lane)[0]; }},
    {"%tid.y", [](const Warp& w, uint32_t lane) -> uint64_t { return thread_of(w, lane)[1]; }},
    {"%tid.z", [](const Warp& w, uint32_t lane) -> uint64_t { return thread_of(w, lane)[2]; }},
    {"%ntid.x", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().block[0]; }},
    {"%ntid.y", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().block[1]; }},
    {"%ntid.z", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().block[2]; }},
    {"%ctaid.x", [](const Warp& w, uint32_t) -> uint64_t { return w.block().id[0]; }},
    {"%ctaid.y", [](const Warp& w, uint32_t) -> uint64_t { return w.block().id[1]; }},
    {"%ctaid.z", [](const Warp& w, uint32_t) -> uint64_t { return w.block().id[2]; }},
    {"%nctaid.x", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().grid[0]; }},
    {"%nctaid.y", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().grid[1]; }},
    {"%nctaid.z", [](const Warp& w, uint32_t) -> uint64_t { return w.launch().grid[2]; }},
    {"%laneid", [](const Warp&, uint32_t lane) -> uint64_t { return lane; }},
    {"%warpid",
     [](const Warp& w, uint32_t) -> uint64_t { return static_cast<uint64_t>(w.index()); }},
    {"%smid", [](const Warp& w, uint32_t) -> uint64_t { return w.block().id[0] % kNumSms; }},
    {"%nsmid", [](const Warp&, uint32_t) -> uint64_t { return kNumSms; }},
    {"%cluster_ctarank", [](const Warp& w, uint32_t) -> uint64_t { return w.block().rank; }},
    {"%cluster_nctarank",
     [](const Warp& w, uint32_t) -> uint64_t { return volume(w.launch().cluster); }},
    {"%cluster_ctaid.x",
     [](const Warp& w, uint32_t) -> uint64_t { return w.block().id[0] % w.launch().cluster[0]; }},
    {"%cluster_nctaid.x",
     [](const Warp& w, uint32_t) -> uint64_t { return w.launch().cluster[0]; }},
    {"%clusterid.x", [](const Warp& w, uint32_t) -> uint64_t { return w.cluster().id[0]; }},
    {"%clusterid.y", [](const Warp& w, uint32_t) -> uint64_t { return w.cluster().id[1]; }},
    {"%clusterid.z", [](const Warp& w, uint32_t) -> uint64_t { return w.cluster().id[2]; }},
    {"%nclusterid.x",
     [](const Warp& w, uint32_t) -> uint64_t {
       return w.launch().grid[0] / w.launch().cluster[0];
     }},
    {"%lanemask_lt", [](const Warp&, uint32_t lane) { return below(lane); }},
    {"%lanemask_le", [](const Warp&, uint32_t lane) { return below(lane + 1); }},
    {"%lanemask_eq", [](const Warp&, uint32_t lane) { return uint64_t{1} << lane; }},
    {"%lanemask_ge", [](const Warp&, uint32_t lane) { return ~below(lane); }},
    {"%lanemask_gt", [](const Warp&, uint32_t lane) { return ~below(lane + 1); }},
    {"%dynamic_smem_size",
     [](const Warp& w, uint32_t) -> uint64_t { return w.launch().dynamic_shared_bytes; }},
    {"%total_smem_size",
     [](const Warp& w, uint32_t) -> uint64_t { return w.block().shared.size(); }},
};

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

bool is_misaligned(uint64_t address, int bytes) {
  constexpr int kLargestAccess = 16;
  if (bytes > kLargestAccess) return false;  // bulk copies check what they need
  return address % std::bit_floor(static_cast<unsigned>(bytes)) != 0;
}

}  // namespace

const SpecialRegister* find_special_register(std::string_view name) {
  const auto* found = std::ranges::find(kSpecialRegisters, name, &SpecialRegister::name);
  return found == std::end(kSpecialRegisters) ? nullptr : found;
}

Warp::Warp(Launch& launch, Block& block, int index, char* registers)
    : launch_(launch), block_(block), index_(index), registers_(registers) {
  const uint64_t num_threads = volume(launch.block);
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (static_cast<uint64_t>(index) * kWarpLanes + lane < num_threads) alive_ |= 1u << lane;
  }
  groups_ = {{0, alive_, false}};
  constexpr int kLocalAlign = 16;
  const int local_bytes =
      (launch.kernel->local_bytes + kLocalAlign - 1) / kLocalAlign * kLocalAlign;
  local_.resize(static_cast<size_t>(local_bytes * kWarpLanes));
  write_constants();
}

void Warp::write_constants() {
  for (const Constant& constant : launch_.kernel->constants) {
    if (constant.slot.bytes == 1) {
      predicate(constant.slot.at) = static_cast<uint32_t>(constant.value);
      continue;
    }
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      uint64_t value = constant.value;
      switch (constant.base) {
        case Constant::Base::none: break;
        case Constant::Base::special:
          value = constant.special->value(*this, static_cast<uint32_t>(lane));
          break;
        case Constant::Base::shared_memory: value += uint64_t{block_.rank} * kBlockWindow; break;
        case Constant::Base::parameters:
          value += reinterpret_cast<uint64_t>(launch_.parameters);
          break;
        case Constant::Base::local_memory:
          value += reinterpret_cast<uint64_t>(local_.data()) +
                   local_.size() / kWarpLanes * static_cast<uint64_t>(lane);
      }
      write(constant.slot, lane, value);
    }
  }
}

uint64_t Warp::read(Slot slot, int lane) {
  switch (slot.bytes) {
    case 2: return reg<uint16_t>(slot.at)[lane];
    case 4: return reg<uint32_t>(slot.at)[lane];
    default: return reg<uint64_t>(slot.at)[lane];
  }
}

void Warp::write(Slot slot, int lane, uint64_t value) {
  switch (slot.bytes) {
    case 2: reg<uint16_t>(slot.at)[lane] = static_cast<uint16_t>(value); break;
    case 4: reg<uint32_t>(slot.at)[lane] = static_cast<uint32_t>(value); break;
    default: reg<uint64_t>(slot.at)[lane] = value;
  }
}

char* Warp::shared(const Instruction& instruction, uint32_t address, int bytes) {
  const uint32_t rank = address / kBlockWindow, offset = address % kBlockWindow;
  const auto& blocks = cluster().blocks;
  if (rank >= blocks.size()) {
    fault(instruction, FaultKind::illegal_address,
          "shared address " + hex(address) + " is of block " + std::to_string(rank) +
              " in a cluster of " + std::to_string(blocks.size()));
  }
  std::vector<char>& shared = blocks[rank]->shared;
  if (offset + static_cast<size_t>(bytes) > shared.size()) {
    fault(instruction, FaultKind::illegal_address,
          std::to_string(bytes) + " bytes at shared address " + hex(offset) +
              ", but the block has " + std::to_string(shared.size()) + " bytes");
  }
  if (is_misaligned(offset, bytes)) {
    fault(instruction, FaultKind::misaligned_address,
          "shared address " + hex(offset) + " for " + std::to_string(bytes) + " bytes");
  }
  return shared.data() + offset;
}

char* Warp::memory(const Instruction& instruction, Space space, uint64_t address, int bytes) {
  if (space == Space::generic && is_shared(address)) {
    address -= kSharedWindow;
    space = Space::shared;
  }
  if (space == Space::shared) {
    return shared(instruction, static_cast<uint32_t>(address), bytes);
  }
  char* const host = reinterpret_cast<char*>(address);
  if (space == Space::parameter) return host;
  const bool is_local =
      !local_.empty() && host >= local_.data() && host + bytes <= local_.data() + local_.size();
  if (is_local) return host;
  check_global(instruction, address, static_cast<uint64_t>(bytes));
  if (is_misaligned(address, bytes)) {
    fault(instruction, FaultKind::misaligned_address,
          "global address " + hex(address) + " for " + std::to_string(bytes) + " bytes");
  }
  return host;
}

void Warp::check_global(const Instruction& instruction, uint64_t address, uint64_t bytes) {
  if (ranges_version_ != allocations().version()) {
    ranges_version_ = allocations().version();
    known_ranges_ = {};
  }
  for (const Range& range : known_ranges_) {
    if (range.holds(address, bytes)) return;
  }
  const auto range = allocations().find(address, bytes);
  if (!range) {
    fault(instruction, FaultKind::illegal_address,
          std::to_string(bytes) + " bytes at global address " + hex(address) +
              " are in no allocation");
  }
  known_ranges_[oldest_range_++ % known_ranges_.size()] = *range;
}

}  // namespace tessera::emulator
