// The memory of this machine and of others, and what fits into it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/device.h"

namespace tessera::apps {

int64_t total_memory_bytes();      // 0 if unknown
int64_t available_memory_bytes();  // can be allocated without swapping
double program_seconds();          // since the program began

// "cpu", "cuda:0, NVIDIA H200".
std::string show_device(Device device);

// Memory that a model may be loaded into.
struct MemoryPlace {
  std::string name;
  int64_t bytes = 0;
};
// The memory of this machine and its GPUs, then two GPU sizes for comparison.
std::vector<MemoryPlace> memory_places();

// The share of memory for weights and KV cache. The rest is for activations, the system and others.
inline constexpr double kUsableShare = 0.9;

// How many sequences of `context` tokens fit beside the weights, in whole KV pages.
int64_t sequences_that_fit(int64_t memory_bytes, int64_t weight_bytes, int64_t kv_bytes_per_token,
                           int64_t context, int64_t page_size);

// Context lengths to show: 512 times powers of four, and the model's own.
std::vector<int64_t> contexts_to_show(int64_t max_positions);

// The share of allocated KV rows that hold no token, for sequences of these lengths.
struct CacheWaste {
  double paged = 0;       // whole pages
  double contiguous = 0;  // max_context rows per sequence
};
CacheWaste cache_waste(std::span<const int64_t> lengths, int64_t page_size, int64_t max_context);

// Lengths spread evenly over [shortest, longest].
std::vector<int64_t> even_lengths(int64_t shortest, int64_t longest, int64_t count);

}  // namespace tessera::apps
