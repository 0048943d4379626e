// Embedding lookup for the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/embedding.cuh"

namespace tessera::kernels {

template void launch_embedding<Portable, Bf16>(const EmbeddingArgs&, const Context&);
template void launch_embedding<Portable, F16>(const EmbeddingArgs&, const Context&);
template void launch_embedding<Portable, float>(const EmbeddingArgs&, const Context&);

}  // namespace tessera::kernels
