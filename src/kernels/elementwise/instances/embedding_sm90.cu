// Embedding lookup for the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/embedding.cuh"

namespace tessera::kernels {

template void launch_embedding<Sm90, Bf16>(const EmbeddingArgs&, const Context&);
template void launch_embedding<Sm90, F16>(const EmbeddingArgs&, const Context&);
template void launch_embedding<Sm90, float>(const EmbeddingArgs&, const Context&);

}  // namespace tessera::kernels
