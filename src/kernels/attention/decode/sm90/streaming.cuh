// Decode attention on Hopper with a balanced assignment (cut.h): every block has the same number of
// steps. A result's last bits depend on the rest of the batch, so the caller must ask for it.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/cut.h"
#include "kernels/attention/decode/sm90/kernel.cuh"

namespace tessera::kernels::decode_sm90 {

template <class Tile>
struct StreamShared {
  Sm90DecodeShared<Tile> decode;
  int sums[kMostStreamed + 1];              // steps of one head over the sequences before
  alignas(16) int warp_sums[Tile::kWarps];  // aligned, so that vector reads stay within it
};

// Prefix sums over the sequences, by the whole block: each thread sums some neighbours, then adds
// the threads before it.
template <class Tile>
__device__ void add_up_steps(const Sm90DecodeParams& p, StreamShared<Tile>& shared) {
  constexpr int kEach = kMostStreamed / Tile::kThreads;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int sums[kEach], sum = 0;
  TESSERA_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int s = thread * kEach + i;
    sum += s < p.num_sequences ? streamed_steps(p.seq_lens[s]) : 0;
    sums[i] = sum;
  }
  int before = sum;  // prefix sum over the warp, this thread included
  TESSERA_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(~0u, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == 31) shared.warp_sums[warp] = before;
  __syncthreads();
  before -= sum;
  for (int w = 0; w < warp; ++w) before += shared.warp_sums[w];
  if (thread == 0) shared.sums[0] = 0;
  TESSERA_UNROLL
  for (int i = 0; i < kEach; ++i) shared.sums[thread * kEach + i + 1] = before + sums[i];
  __syncthreads();
}

// A block can have two partial heads: one that an earlier block began, and one that it begins.
__device__ inline int64_t place_of_part(int block, bool begins) {
  return 2 * block + (begins ? 1 : 0);
}

template <class Q, class Tile>
__device__ void finish_segment(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                               const StreamSegment& segment, const StreamCut& cut) {
  const DecodeUnit unit{segment.sequence, segment.kv_head, 0, 0};
  if (segment.is_whole()) {
    for_quads<Tile>(p, unit, [&](int row, int quad) {
      store_quad<Q, Tile>(p, unit, row, quad, fold_warps(shared, unit, row, quad));
    });
    return;
  }
  const int64_t mine = place_of_part(static_cast<int>(blockIdx.x), segment.begin == 0);
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    leave_part<Tile>(p, mine * Tile::kRows + row, quad, fold_warps(shared, unit, row, quad));
  });
  const int first = cut.block_of(segment.first);
  const int last = cut.block_of(segment.first + segment.num_steps - 1);
  uint32_t* ticket = &p.tickets[segment.sequence * p.num_kv_heads + segment.kv_head];
  if (!is_last_block(ticket, last - first + 1, shared.is_last)) return;
  for_quads<Tile>(p, unit, [&](int row, int quad) {
    TileState<Tile> total{};
    for (int block = first; block <= last; ++block) {
      const int64_t at = place_of_part(block, block == first) * Tile::kRows + row;
      total = fold(total, load_part<Tile>(p, at, quad));
    }
    store_quad<Q, Tile>(p, unit, row, quad, total);
  });
}

// The newest token of every sequence over a KV cache of 16 bits, for ragged batches.
//
//   out[h] = softmax(scale * q[h] . k[j]) . v[j]       over all keys j of the sequence
//
// Work      As many blocks as are resident at once. The steps of all sequences and KV heads are cut
//           into equal runs, one per block; a run's segments belong to one head each, and the warps
//           of the block share a segment.
// Pipeline  As attention_decode_sm90_kernel; the rings start anew with every segment.
// Output    A head within one block is stored at once. Otherwise each block leaves a partial state,
//           and the last block of the head folds them in the order of the keys. Where the cuts fall
//           depends on all lengths, so this kernel is not batch-invariant.
// Cost      Reads each key and value once; no block has more than one step more than another.
//           docs/kernels/decode.md
// Needs     plain queries (is_plain), at most 8 per KV head, at most kMostStreamed sequences.
template <class Q, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksOnSm)
    attention_decode_streaming_kernel(const __grid_constant__ Sm90DecodeParams p) {
  extern __shared__ char raw[];
  auto& shared = *reinterpret_cast<StreamShared<Tile>*>(raw);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  StepRing<Tile> ring(p, shared.decode, warp, lane);
  tile::wait_for_previous(Sm90{});
  tile::release_next(Sm90{});
  add_up_steps(p, shared);
  const StreamCut cut(static_cast<int64_t>(shared.sums[p.num_sequences]) * p.num_kv_heads,
                      static_cast<int>(gridDim.x));
  const int64_t end = cut.begin(static_cast<int>(blockIdx.x) + 1);
  int64_t position = cut.begin(static_cast<int>(blockIdx.x));
#pragma unroll 1
  while (position < end) {
    const StreamSegment segment =
        segment_at(shared.sums, p.num_sequences, p.num_kv_heads, position, end);
    const int len = max(p.seq_lens[segment.sequence], 0);
    const auto step_of = [&](int part) {
      return segment.begin + part * (segment.end - segment.begin) / Tile::kWarps;
    };
    const int last_step = (len + kStepKeys - 1) / kStepKeys;  // 0 if the sequence is empty
    const KeyRun run{.sequence = segment.sequence,
                     .kv_head = segment.kv_head,
                     .len = len,
                     .first_key = 0,
                     .steps = {min(step_of(warp), last_step), min(step_of(warp + 1), last_step)}};
    ring.start(run);
    DecodeWarp<Q, Tile> w{p, ring, shared.decode, lane, run, 0};
    w.load_q();
    w.take_leaf(run.steps.begin, run.steps.end, false);
    __syncthreads();  // states overwrite the rings
    leave_state(w, warp, false);
    __syncthreads();
    finish_segment<Q>(p, shared.decode, segment, cut);
    tile::ptx::fence_proxy_async_shared();  // TMA writes there next
    __syncthreads();
    ring.reset();
    position += segment.end - segment.begin;
  }
}

template <class Q, int kD>
void launch_streaming(const DecodeAttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  using Plain = Operands<KvFormat::plain, Q>;
  using Tile = DecodeTile<Plain, Plain, kD, 8, 8, false>;
  Sm90DecodeParams p = decode_params<Tile>(args);
  const auto num_blocks =
      static_cast<unsigned>(device_info(args.q.device).num_sms * Tile::kBlocksOnSm);
  const size_t states = 2 * num_blocks * Tile::kRows;
  const size_t o_bytes = states * Tile::kD * sizeof(float);
  const StreamScratch scratch(
      args.q.device, ctx.stream,
      {.num_bytes = o_bytes + states * sizeof(float4),
       .num_tickets = static_cast<size_t>(p.num_sequences * p.num_kv_heads)});
  p.partial_o = static_cast<float4*>(scratch.data());
  p.partial_sums = reinterpret_cast<float4*>(static_cast<char*>(scratch.data()) + o_bytes);
  p.tickets = scratch.tickets();
  launch(&attention_decode_streaming_kernel<Q, Tile>,
         {.grid = dim3(num_blocks),
          .block = dim3(Tile::kThreads),
          .shared_bytes = sizeof(StreamShared<Tile>),
          .overlaps_previous = true},
         p, ctx);
}

}  // namespace tessera::kernels::decode_sm90
