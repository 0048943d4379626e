// The shapes of the portable prefill kernels, as plain functions of the head dimensions.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera::kernels::prefill_portable {

// A block of the tensor-core kernel: `rows` queries of one head against `keys` keys per step. Each
// warp owns rows / num_warps queries; K and V of two steps lie in shared memory.
struct MmaAttentionTile {
  int d_k;
  int d_v;
  int rows;
  int keys;
  int num_warps;
  bool holds_q;    // Q stays in registers instead of being read again for each step
  int min_blocks;  // blocks per SM that registers must allow

  constexpr int num_threads() const { return 32 * num_warps; }
  constexpr int warp_rows() const { return rows / num_warps; }
  bool operator==(const MmaAttentionTile&) const = default;
};

// Shared memory that every architecture from sm_80 up can give to a block.
inline constexpr int kMostSharedBytes = 99 * 1024;

// A warp of 32 rows reads each fragment of K and V once for two multiplications of 16 rows; with 16
// rows shared memory would be the limit instead of the tensor cores. 32 rows fit up to a d_v of
// 128. The budget is 255 registers per thread, with two blocks of 4 warps per SM. Scores, values
// and Q, if it is held, take:
//   d_k, d_v   registers   shared memory
//   128, 128   192         96 KB
//   192, 128   160         88 KB
//   96, 96     160         72 KB
//   64, 64     160         48 KB
//   32, 64     144         40 KB
//   256, 256   144         96 KB
// General instances (softcap, ALiBi, dropout) need further registers: they process half as many
// keys at once, or read Q again.
constexpr MmaAttentionTile mma_attention_tile(int d_k, int d_v, bool is_general) {
  if (d_k > 192) return {d_k, d_v, 64, 32, 4, false, 2};
  if (d_k > 128) return {d_k, d_v, 128, 32, 4, false, 2};
  const bool has_room = d_v <= 64;
  return {d_k, d_v, 128, is_general && !has_room ? 32 : 64, 4, !is_general && has_room, 2};
}

// Types rather than values, because nvcc cannot mangle a kernel with a struct value from a
// namespace.
template <int kDk, int kDv, bool kIsGeneral>
struct MmaAttention {
  static constexpr MmaAttentionTile kShape = mma_attention_tile(kDk, kDv, kIsGeneral);
  static constexpr bool kIsPadded = false;
};

// A tile of kD columns for smaller heads; the missing columns are zeros. One general instance
// serves every call, so that few are compiled.
template <int kD>
struct PaddedMmaAttention {
  static constexpr MmaAttentionTile kShape = mma_attention_tile(kD, kD, true);
  static constexpr bool kIsPadded = true;
};

// A block of the kernel on CUDA cores: 8 x 16 threads, each with rows / 8 queries, keys / 16 keys
// and d_v / 16 values of each query. Rows of queries, keys and weights are padded by 16 bytes, so
// that neighbouring rows lie in different banks.
struct SimtAttentionTile {
  int d_k;
  int d_v;
  int rows;
  int keys;
  int min_blocks;

  static constexpr int kPad = 4;  // floats
  static constexpr int kThreadsM = 8;
  static constexpr int kThreadsN = 16;
  static constexpr int kThreads = kThreadsM * kThreadsN;
  constexpr int thread_rows() const { return rows / kThreadsM; }
  constexpr int thread_keys() const { return keys / kThreadsN; }
  constexpr int thread_values() const { return d_v / kThreadsN; }
  // Neighbouring values of a thread.
  constexpr int vector() const { return thread_values() % 4 == 0 ? 4 : 2; }
  bool operator==(const SimtAttentionTile&) const = default;
};

// Two or three blocks fit on an SM of sm_90, with 69 to 102 KB each. With d 256 a block does not
// fit on architectures that allow only 99 KB.
constexpr SimtAttentionTile simt_attention_tile(int d_k, int d_v) {
  if (d_k > 192) return {d_k, d_v, 32, 32, 2};
  return {d_k, d_v, 64, d_k > 96 ? 32 : 64, 2};
}

template <int kDk, int kDv>
struct SimtAttention {
  static constexpr SimtAttentionTile kShape = simt_attention_tile(kDk, kDv);
  static constexpr bool kIsPadded = false;
};

template <int kD>
struct PaddedSimtAttention {
  static constexpr SimtAttentionTile kShape = simt_attention_tile(kD, kD);
  static constexpr bool kIsPadded = true;
};

}  // namespace tessera::kernels::prefill_portable
