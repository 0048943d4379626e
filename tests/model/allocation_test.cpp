// A step of the model allocates nothing. Every way to allocate is counted: operator new, which this
// file replaces, and aligned_alloc, which tensors use and the linker redirects here.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/model/runner.h"
#include "tests/model/temporary_folder.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

void* counted(void* data) {
  ++num_allocations;
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

extern "C" void* __real_aligned_alloc(size_t alignment, size_t size);
extern "C" void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  ++num_allocations;
  return __real_aligned_alloc(alignment, size);
}

void* operator new(size_t size) { return counted(std::malloc(size > 0 ? size : 1)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return counted(__real_aligned_alloc(align, (size + align - 1) / align * align));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(size > 0 ? size : 1);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace tessera::testing {
namespace {

TEST(Allocation, IsCounted) {
  const int64_t before = num_allocations;
  const std::vector<int> vector(3);
  const Tensor tensor(DType::f32, {3});
  EXPECT_EQ(num_allocations - before, 2);
}

TEST(Allocation, NewRowsOfTheTableOfAnglesTakeNoMemory) {
  RopeTable table(2000, 64, 10000.0, {}, cpu_device());
  const int64_t before = num_allocations;
  for (const int64_t num_positions : {1, 256, 257, 1999}) table.make_rows(num_positions);
  EXPECT_EQ(num_allocations - before, 0);
}

struct Kind {
  model::LoadOptions load;
  KvFormat kv_type = KvFormat::plain;
};

// Prompts beside decodes, decodes alone, in each type: the second step of a kind allocates nothing.
TEST(Allocation, AStepTakesNoMemory) {
  dist::LocalCommunicator local;
  const model::ModelConfig config = model::load_config(bundled_model());
  const model::Checkpoint checkpoint = model::Checkpoint::open(bundled_model());
  for (const Kind& kind : {Kind{{.dtype = DType::f32}}, Kind{{.dtype = DType::bf16}},
                           Kind{{.dtype = DType::bf16, .format = model::WeightFormat::int8}},
                           Kind{{.dtype = DType::bf16}, KvFormat::int8},
                           Kind{{.dtype = DType::bf16}, KvFormat::int4}}) {
    const model::LoadOptions& options = kind.load;
    Runner runner(load_model(checkpoint, config, options), local, 96, kind.kv_type);
    Sequence first, second;
    second.tail = 1;
    const std::vector<int32_t> prompt(40, 7);
    std::vector<std::vector<Chunk>> kinds = {{{&first, {1}}, {&second, prompt, true}},
                                             {{&first, {2}}, {&second, {3}}}};
    // On the CPU decoding over a quantised cache keeps its own vectors, and the plan of a step
    // keeps the memory of the longest step so far: warm both up first.
    if (kind.kv_type != KvFormat::plain) {
      kinds = {{{&first, {1}, false, true}, {&second, prompt}}};
      for (int i = 0; i < 4; ++i) runner.step(kinds.front());
      runner.release(second);
      second.tail = 1;
    }
    for (const std::vector<Chunk>& chunks : kinds) {
      runner.step(chunks);
      runner.fill(chunks);
      const int64_t before = num_allocations;
      runner.run();
      EXPECT_EQ(num_allocations - before, 0) << name(options.dtype) << ' ' << name(kind.kv_type);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
