// Predicated loads from global memory, so that a load beyond the end needs no branch. With a branch
// around each load the compiler waits for one load before it issues the next.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera::tile::ptx {

// PTX: ld.global, predicated. The words are 0 if not `is_inside`; the address is aligned to all of
// them together.
__device__ __forceinline__ void ld_global_if(const void* data, bool is_inside,
                                             uint32_t (&words)[4]) {
  words[0] = words[1] = words[2] = words[3] = 0;
  asm volatile(
      "{\n.reg .pred inside;\n"
      "setp.ne.u32 inside, %5, 0;\n"
      "@inside ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
      : "l"(__cvta_generic_to_global(data)), "r"(static_cast<uint32_t>(is_inside))
      : "memory");
}

__device__ __forceinline__ void ld_global_if(const void* data, bool is_inside,
                                             uint32_t (&words)[2]) {
  words[0] = words[1] = 0;
  asm volatile(
      "{\n.reg .pred inside;\n"
      "setp.ne.u32 inside, %3, 0;\n"
      "@inside ld.global.v2.b32 {%0, %1}, [%2];\n}"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(__cvta_generic_to_global(data)), "r"(static_cast<uint32_t>(is_inside))
      : "memory");
}

__device__ __forceinline__ void ld_global_if(const void* data, bool is_inside,
                                             uint32_t (&words)[1]) {
  words[0] = 0;
  asm volatile(
      "{\n.reg .pred inside;\n"
      "setp.ne.u32 inside, %2, 0;\n"
      "@inside ld.global.b32 %0, [%1];\n}"
      : "+r"(words[0])
      : "l"(__cvta_generic_to_global(data)), "r"(static_cast<uint32_t>(is_inside))
      : "memory");
}

__device__ __forceinline__ void ld_global_if(const void* data, bool is_inside,
                                             uint16_t (&words)[1]) {
  words[0] = 0;
  asm volatile(
      "{\n.reg .pred inside;\n"
      "setp.ne.u32 inside, %2, 0;\n"
      "@inside ld.global.b16 %0, [%1];\n}"
      : "+h"(words[0])
      : "l"(__cvta_generic_to_global(data)), "r"(static_cast<uint32_t>(is_inside))
      : "memory");
}

// PTX: ld.global, of one word. Until `keep` names its result, nothing waits for the load.
__device__ __forceinline__ uint32_t ld_global_word(const void* data) {
  uint32_t word;
  asm volatile("ld.global.b32 %0, [%1];"
               : "=r"(word)
               : "l"(__cvta_generic_to_global(data))
               : "memory");
  return word;
}
// No instruction: the value is needed here.
__device__ __forceinline__ void keep(uint32_t word) { asm volatile("" ::"r"(word)); }

// PTX: prefetch.global.L2. One line.
__device__ __forceinline__ void prefetch_l2(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(source)) : "memory");
}

}  // namespace tessera::tile::ptx
