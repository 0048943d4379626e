// The ladder's steps: one row each, and the tests, the timer and the table all walk the rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/library.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"

namespace tessera::ladder {

// d[m, n] = a[m, k] . b[n, k]^T on one GPU: dense and row-major, of the step's type, summed in f32.
struct Problem {
  const void* a;  // [m, k]
  const void* b;  // [n, k]
  void* d;        // [m, n]
  int m;
  int n;
  int k;
};

// The same with types, as the kernels take it.
template <class T>
struct Operands {
  const T* a;  // [m, k]
  const T* b;  // [n, k]
  T* d;        // [m, n]
  int m;
  int n;
  int k;

  explicit Operands(const Problem& p)
      : a(static_cast<const T*>(p.a)),
        b(static_cast<const T*>(p.b)),
        d(static_cast<T*>(p.d)),
        m(p.m),
        n(p.n),
        k(p.k) {}
};

// What m, n and k must be multiples of; all are at least 1.
struct Multiples {
  int m;
  int n;
  int k;
};

struct Step {
  std::string_view name;  // "01_naive"
  std::string_view file;  // in ladder/gemm
  DType dtype;            // the track: f32 or bf16
  Library library;
  Multiples multiples;
  void (*launch)(const Problem&, const Context&);
  bool (*is_present)() = nullptr;  // in this build, on this GPU; null: wherever its library is

  bool accepts(int m, int n, int k) const {
    return m % multiples.m == 0 && n % multiples.n == 0 && k % multiples.k == 0;
  }
};

// In order.
std::span<const Step> steps();
// Throws, listing the names, if there is no such step.
const Step& find_step(std::string_view name);
// Why the step cannot run on this GPU in this build; empty where it can.
std::string missing(const Step& step);
// Launches, after refusing sizes the step does not take.
void run(const Step& step, const Problem& problem, const Context& ctx);

// cuBLASLt through the library's own row, TF32 off: what every step is measured against.
bool has_cublas(DType dtype, const Problem& problem);
void run_cublas(DType dtype, const Problem& problem, const Context& ctx);

void launch_naive(const Problem& problem, const Context& ctx);
void launch_coalesced(const Problem& problem, const Context& ctx);
void launch_shared_tile(const Problem& problem, const Context& ctx);
void launch_register_tile(const Problem& problem, const Context& ctx);
void launch_vectorised(const Problem& problem, const Context& ctx);
void launch_double_buffered(const Problem& problem, const Context& ctx);
void launch_wmma(const Problem& problem, const Context& ctx);
void launch_mma_swizzle(const Problem& problem, const Context& ctx);
void launch_cp_async(const Problem& problem, const Context& ctx);
void launch_wgmma_tma(const Problem& problem, const Context& ctx);
void launch_warp_specialised(const Problem& problem, const Context& ctx);
void launch_persistent(const Problem& problem, const Context& ctx);
void launch_clusters(const Problem& problem, const Context& ctx);
void launch_production(const Problem& problem, const Context& ctx);
bool has_production();

}  // namespace tessera::ladder
