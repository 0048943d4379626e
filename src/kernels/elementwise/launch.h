// The launchers of the elementwise tables. Each is defined in its .cuh and instantiated for both
// libraries from the list in CMakeLists.txt; a row without an instance does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/elementwise/rows.h"

namespace tessera::kernels {

template <class Arch, class In, class Out>
void launch_rms_norm(const RmsNormArgs& args, const Context& ctx);
template <class Arch, class In, class Out>
void launch_layer_norm(const LayerNormArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_rope(const RopeArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_activation(const ActivationArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_softmax(const SoftmaxArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_embedding(const EmbeddingArgs& args, const Context& ctx);
template <class Arch, class Bits>  // Bits: uint8_t, F16, int32_t or int64_t, by width
void launch_copy(const CopyArgs& args, const Context& ctx);
template <class Arch, class In, class Out>  // two different floating-point types
void launch_convert(const CopyArgs& args, const Context& ctx);
template <class Arch, class In, class Out>
void launch_quantize(const QuantizeArgs& args, const Context& ctx);
template <class Arch, class In, class Out>
void launch_dequantize(const DequantizeArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_reduce(const ReduceArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_scale(const ScaleArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_argmax(const ArgmaxArgs& args, const Context& ctx);

}  // namespace tessera::kernels
