// The two kernel libraries, and the tags that make a kernel an instance for one of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera {

// `portable` is built for every architecture asked for, sm_80 up; `sm90` for sm_90a only.
enum class Library : uint8_t { portable, sm90 };

constexpr bool runs_on(Library library, int compute_capability) {
  return library == Library::sm90 ? compute_capability == 90 : compute_capability >= 80;
}

// Tags that device code overloads on (tile/arch.cuh), in place of `#if __CUDA_ARCH__`.
struct Portable {
  static constexpr Library library = Library::portable;
};
struct Sm90 {
  static constexpr Library library = Library::sm90;
};

}  // namespace tessera
