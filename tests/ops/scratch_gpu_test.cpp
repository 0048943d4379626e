// Scratch memory on a GPU: which calls share it, which do not, and that it is freed.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "core/cuda_check.h"
#include "core/graph.h"
#include "kernels/stream_scratch.h"
#include "tessera/core/error.h"
#include "tessera/core/tensor.h"
#include "tests/gpu.h"
#include "tests/ops/graph_capture.h"

namespace tessera {
namespace {

using kernels::kMaxKeptScratches;
using kernels::scratch_stats;
using kernels::ScratchStats;
using kernels::StreamScratch;
using testing::Graph;
using testing::OwnStream;

constexpr kernels::ScratchSize kSmall{.num_bytes = 1000, .num_tickets = 100};

bool are_zero(const uint32_t* tickets, size_t count, Stream stream) {
  std::vector<uint32_t> host(count, 1);
  copy_bytes(host.data(), cpu_device(), tickets, cuda_device(), 4 * count, stream);
  synchronize(cuda_device(), stream);
  return host == std::vector<uint32_t>(count, 0);
}

// A destroyed graph returns its memory later, on a thread of the driver.
ScratchStats stats_without_captures(int64_t num_captures) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  ScratchStats stats = scratch_stats();
  while (stats.num_captures > num_captures && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stats = scratch_stats();
  }
  return stats;
}

class ScratchOnGpu : public testing::GpuTest {};

TEST_F(ScratchOnGpu, IsSharedByTheGraphsOfAPoolAndFreedWithIt) {
  const ScratchStats before = stats_without_captures(0);
  const OwnStream stream;
  constexpr size_t kLarge = size_t{1} << 20;
  {
    GraphPool pool(cuda_device());
    std::vector<tessera::Graph> graphs;
    std::set<void*> pieces;
    for (const size_t num_bytes : {size_t{1000}, kLarge, size_t{1000}}) {
      graphs.push_back(pool.capture(stream.get(), [&] {
        const StreamScratch scratch(cuda_device(), stream.get(),
                                    {.num_bytes = num_bytes, .num_tickets = 100});
        pieces.insert(scratch.data());
        fill_bytes(scratch.data(), cuda_device(), 0xff, num_bytes, stream.get());
      }));
    }
    EXPECT_EQ(pieces.size(), 2u) << "the third fits into what the second took";
    EXPECT_EQ(scratch_stats().num_captures, 1);
    for (const tessera::Graph& graph : graphs) graph.launch(stream.get());  // the first piece too
    synchronize(cuda_device(), stream.get());
  }
  EXPECT_EQ(scratch_stats().num_captures, 0);
  EXPECT_EQ(scratch_stats().num_bytes, before.num_bytes);
}

TEST_F(ScratchOnGpu, ACaptureThatThrowsLeavesTheStreamUsable) {
  const OwnStream stream;
  GraphPool pool(cuda_device());
  EXPECT_THROW(pool.capture(stream.get(), [] { fail("no kernel for this"); }), Error);
  const Tensor memory(DType::i32, {4}, cuda_device());
  const tessera::Graph graph = pool.capture(
      stream.get(), [&] { fill_bytes(memory.view().data, cuda_device(), 7, 16, stream.get()); });
  graph.launch(stream.get());
  int32_t got = 0;
  copy_bytes(&got, cpu_device(), memory.view().data, cuda_device(), 4, stream.get());
  synchronize(cuda_device(), stream.get());
  EXPECT_EQ(got, 0x07070707);
}

TEST_F(ScratchOnGpu, IsKeptByAStreamAndItsTicketsAreZero) {
  const OwnStream stream;
  void* small = nullptr;
  {
    const StreamScratch scratch(cuda_device(), stream.get(), kSmall);
    EXPECT_TRUE(are_zero(scratch.tickets(), 100, stream.get()));
    fill_bytes(scratch.data(), cuda_device(), 0xff, 1000, stream.get());
    small = scratch.data();
  }
  {
    const StreamScratch same(cuda_device(), stream.get(), {.num_bytes = 500, .num_tickets = 50});
    EXPECT_EQ(same.data(), small);
    EXPECT_TRUE(are_zero(same.tickets(), 50, stream.get()));
  }
  {
    const StreamScratch large(cuda_device(), stream.get(),
                              {.num_bytes = 1 << 24, .num_tickets = 1 << 16});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data()) % 256, 0u);
    fill_bytes(large.data(), cuda_device(), 0xff, 1 << 24, stream.get());
    EXPECT_TRUE(are_zero(large.tickets(), 1 << 16, stream.get()));
  }
  const int64_t num_calls = scratch_stats().num_calls;
  const StreamScratch none(cuda_device(), stream.get(), {});
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.tickets(), nullptr);
  EXPECT_EQ(scratch_stats().num_calls, num_calls);
}

TEST_F(ScratchOnGpu, FreesWhatItOutgrew) {
  const OwnStream stream;
  { const StreamScratch scratch(cuda_device(), stream.get(), {.num_bytes = 1 << 20}); }
  const int64_t before = scratch_stats().num_bytes;
  for (int log2_bytes = 21; log2_bytes <= 26; ++log2_bytes) {
    const size_t num_bytes = size_t{1} << log2_bytes;
    const StreamScratch scratch(cuda_device(), stream.get(), {.num_bytes = num_bytes});
    // This work may still be running when the next iteration frees its memory.
    fill_bytes(scratch.data(), cuda_device(), 1, num_bytes, stream.get());
  }
  EXPECT_EQ(scratch_stats().num_bytes - before, (1 << 26) - (1 << 20));
}

// A new stream may have the handle of one that was destroyed.
TEST_F(ScratchOnGpu, IsBoundedHoweverManyStreamsComeAndGo) {
  const int64_t num_bytes = scratch_stats().num_bytes;
  std::vector<OwnStream> streams(3 * kMaxKeptScratches);
  for (int round = 0; round < 2; ++round) {
    for (const OwnStream& stream : streams) {
      const StreamScratch scratch(cuda_device(), stream.get(), kSmall);
      fill_bytes(scratch.data(), cuda_device(), 0xff, 1000, stream.get());
      EXPECT_TRUE(are_zero(scratch.tickets(), 100, stream.get()));
    }
  }
  EXPECT_LE(scratch_stats().num_streams, static_cast<int64_t>(kMaxKeptScratches));
  streams.clear();
  for (size_t i = 0; i < 3 * kMaxKeptScratches; ++i) {
    const OwnStream brief;
    const StreamScratch scratch(cuda_device(), brief.get(), kSmall);
    fill_bytes(scratch.data(), cuda_device(), 0xff, 1000, brief.get());
    EXPECT_TRUE(are_zero(scratch.tickets(), 100, brief.get()));
  }
  EXPECT_LE(scratch_stats().num_streams, static_cast<int64_t>(kMaxKeptScratches));
  // The streams here took 64 KB and 16 KB of tickets each.
  EXPECT_LE(scratch_stats().num_bytes - num_bytes,
            static_cast<int64_t>(kMaxKeptScratches) * (80 << 10));
  cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

TEST_F(ScratchOnGpu, IsNotSharedByTwoGraphsCapturedOnOneStream) {
  const OwnStream stream;
  std::set<void*> data;
  std::set<uint32_t*> tickets;
  const auto take = [&](kernels::ScratchSize size) {
    const StreamScratch scratch(cuda_device(), stream.get(), size);
    data.insert(scratch.data());
    tickets.insert(scratch.tickets());
    fill_bytes(scratch.data(), cuda_device(), 1, 1, stream.get());  // a graph has to hold something
  };
  take(kSmall);
  {
    const Graph first(stream, [&] {
      take(kSmall);
      take(kSmall);  // same graph and stream, so in order: may be the same memory
    });
    EXPECT_EQ(data.size(), 2u);
    const Graph second(stream, [&] { take(kSmall); });
    EXPECT_EQ(data.size(), 3u);
    EXPECT_EQ(tickets.size(), 3u);
    take(kSmall);
    EXPECT_EQ(data.size(), 3u) << "the stream keeps its own";
    const Graph growing(stream, [&] {
      take(kSmall);
      take({.num_bytes = 1 << 20, .num_tickets = 1 << 14});
    });
    EXPECT_EQ(data.size(), 5u) << "what was captured first keeps what it has";
    EXPECT_EQ(tickets.size(), 5u);
  }
  EXPECT_FALSE(data.contains(nullptr));
  EXPECT_FALSE(tickets.contains(nullptr));
}

TEST_F(ScratchOnGpu, IsNotSharedByTwoStreamsOfOneCapture) {
  const OwnStream stream, side;
  cudaEvent_t fork = nullptr, join = nullptr;
  cuda_check(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "cudaEventCreate");
  cuda_check(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "cudaEventCreate");
  std::set<void*> data;
  {
    const Graph graph(stream, [&] {
      const auto take = [&](const OwnStream& on) {
        const StreamScratch scratch(cuda_device(), on.get(), kSmall);
        data.insert(scratch.data());
        fill_bytes(scratch.data(), cuda_device(), 1, 1, on.get());
      };
      cuda_check(cudaEventRecord(fork, stream.get()), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(side.get(), fork, 0), "cudaStreamWaitEvent");
      take(stream);
      take(side);
      cuda_check(cudaEventRecord(join, side.get()), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(stream.get(), join, 0), "cudaStreamWaitEvent");
    });
    EXPECT_EQ(data.size(), 2u);
  }
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
}

TEST_F(ScratchOnGpu, LivesAsLongAsTheGraphAndIsGivenBackThen) {
  const OwnStream stream;
  const ScratchStats before = stats_without_captures(0);
  EXPECT_EQ(before.num_captures, 0) << "left by other tests";
  constexpr int64_t kGraphs = 8, kBytes = 1 << 20;
  std::vector<std::unique_ptr<Graph>> graphs;
  for (int64_t i = 0; i < kGraphs; ++i) {
    graphs.push_back(std::make_unique<Graph>(stream, [&] {
      const StreamScratch scratch(cuda_device(), stream.get(), {.num_bytes = kBytes});
      fill_bytes(scratch.data(), cuda_device(), 1, kBytes, stream.get());
    }));
  }
  EXPECT_EQ(scratch_stats().num_captures, kGraphs);
  EXPECT_EQ(scratch_stats().num_bytes - before.num_bytes, kGraphs * kBytes);
  for (const auto& graph : graphs) {
    graph->instantiate();
    graph->forget_graph();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(scratch_stats().num_captures, kGraphs) << "executables hold it";
  for (const auto& graph : graphs) graph->replay(stream);
  stream.wait();
  graphs.resize(2);
  EXPECT_EQ(stats_without_captures(2).num_bytes - before.num_bytes, 2 * kBytes);
  for (const auto& graph : graphs) graph->replay(stream);
  graphs.clear();  // while they run
  const ScratchStats after = stats_without_captures(0);
  EXPECT_EQ(after.num_captures, 0);
  EXPECT_EQ(after.num_bytes, before.num_bytes);
  stream.wait();
}

TEST_F(ScratchOnGpu, IsGivenBackByACaptureThatFails) {
  const OwnStream stream;
  const ScratchStats before = stats_without_captures(0);
  const auto capture = [&] {
    const Graph graph(stream, [&] {
      const StreamScratch scratch(cuda_device(), stream.get(), kSmall);
      throw Error("on purpose");
    });
  };
  EXPECT_THROW(capture(), Error);
  EXPECT_EQ(stats_without_captures(0).num_bytes, before.num_bytes);
}

// Two kernels a call, as a split and its merge have: another thread's call must not come between.
TEST_F(ScratchOnGpu, IsNotMixedByTwoThreadsOnOneStream) {
  const OwnStream stream;
  constexpr size_t kBytes = 1 << 20;
  constexpr int kThreads = 4, kCalls = 200;
  std::vector<Tensor> outs;
  for (int i = 0; i < kThreads * kCalls; ++i) {
    outs.emplace_back(DType::u8, std::initializer_list<int64_t>{1024}, cuda_device());
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int call = 0; call < kCalls; ++call) {
        const StreamScratch scratch(cuda_device(), stream.get(), {.num_bytes = kBytes});
        fill_bytes(scratch.data(), cuda_device(), static_cast<uint8_t>(thread + 1), kBytes,
                   stream.get());
        copy_bytes(outs[static_cast<size_t>(thread * kCalls + call)].view().data, cuda_device(),
                   scratch.data(), cuda_device(), 1024, stream.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stream.wait();
  for (int i = 0; i < kThreads * kCalls; ++i) {
    const Tensor host = outs[static_cast<size_t>(i)].to(cpu_device());
    const auto* bytes = host.view().as<uint8_t>();
    EXPECT_EQ(std::count(bytes, bytes + 1024, static_cast<uint8_t>(i / kCalls + 1)), 1024) << i;
  }
}

TEST_F(ScratchOnGpu, IsTakenByManyThreadsOnStreamsOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([thread] {
      for (int i = 0; i < 30; ++i) {
        const OwnStream stream;
        const size_t num_bytes = size_t{1} << (10 + (i + thread) % 12);
        const StreamScratch scratch(cuda_device(), stream.get(),
                                    {.num_bytes = num_bytes, .num_tickets = 10});
        fill_bytes(scratch.data(), cuda_device(), 0xff, num_bytes, stream.get());
        EXPECT_TRUE(are_zero(scratch.tickets(), 10, stream.get()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(scratch_stats().num_streams, static_cast<int64_t>(kMaxKeptScratches));
}

TEST_F(ScratchOnGpu, OfTheDefaultStreamsIsTheProcesssOrTheThreads) {
  const auto data_of = [](Stream stream) {
    const StreamScratch scratch(cuda_device(), stream, kSmall);
    return scratch.data();
  };
  void* const legacy = data_of(nullptr);
  void* const mine = data_of(cudaStreamPerThread);
  EXPECT_NE(mine, legacy);
  EXPECT_EQ(data_of(cudaStreamPerThread), mine);
  std::thread([&] {
    EXPECT_EQ(data_of(nullptr), legacy);
    EXPECT_NE(data_of(cudaStreamPerThread), mine);
  }).join();
}

}  // namespace
}  // namespace tessera
