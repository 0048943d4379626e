// The elementwise tables, written once for both libraries: ElementwiseTable<Portable> and
// ElementwiseTable<Sm90> hold the same kernels; those of sm90 overlap the kernel in front of them
// (programmatic dependent launch). Order is preference.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rows.h"

#include "kernels/elementwise/launch.h"

namespace tessera::kernels {
namespace {

template <class Arch>
struct ElementwiseTable {
  // The key and the name of a row follow from its types.
  template <class In, class Out, class Args>
  static constexpr Row<Args> row(std::string_view op, void (*launch)(const Args&, const Context&),
                                 Label label = {}) {
    return {op, Arch::library, {dtype_of<In>, dtype_of<Out>}, launch, label};
  }
  // A copy of bits: its rows are named by their width.
  template <class Bits>
  static constexpr Row<CopyArgs> copy_row() {
    return row<Bits, Bits>("copy", &launch_copy<Arch, Bits>, label_of(8 * sizeof(Bits), "bit"));
  }

  static constexpr Row<RmsNormArgs> rms_norm[] = {
      row<Bf16, Bf16>("rms_norm", &launch_rms_norm<Arch, Bf16, Bf16>),
      row<Bf16, E4m3>("rms_norm", &launch_rms_norm<Arch, Bf16, E4m3>),
      row<Bf16, int8_t>("rms_norm", &launch_rms_norm<Arch, Bf16, int8_t>),
      row<F16, F16>("rms_norm", &launch_rms_norm<Arch, F16, F16>),
      row<F16, E4m3>("rms_norm", &launch_rms_norm<Arch, F16, E4m3>),
      row<F16, int8_t>("rms_norm", &launch_rms_norm<Arch, F16, int8_t>),
      row<float, float>("rms_norm", &launch_rms_norm<Arch, float, float>),
      row<float, E4m3>("rms_norm", &launch_rms_norm<Arch, float, E4m3>),
      row<float, int8_t>("rms_norm", &launch_rms_norm<Arch, float, int8_t>),
  };
  static constexpr Row<LayerNormArgs> layer_norm[] = {
      row<Bf16, Bf16>("layer_norm", &launch_layer_norm<Arch, Bf16, Bf16>),
      row<Bf16, E4m3>("layer_norm", &launch_layer_norm<Arch, Bf16, E4m3>),
      row<Bf16, int8_t>("layer_norm", &launch_layer_norm<Arch, Bf16, int8_t>),
      row<F16, F16>("layer_norm", &launch_layer_norm<Arch, F16, F16>),
      row<F16, E4m3>("layer_norm", &launch_layer_norm<Arch, F16, E4m3>),
      row<F16, int8_t>("layer_norm", &launch_layer_norm<Arch, F16, int8_t>),
      row<float, float>("layer_norm", &launch_layer_norm<Arch, float, float>),
      row<float, E4m3>("layer_norm", &launch_layer_norm<Arch, float, E4m3>),
      row<float, int8_t>("layer_norm", &launch_layer_norm<Arch, float, int8_t>),
  };
  static constexpr Row<RopeArgs> rope[] = {
      row<Bf16, Bf16>("rope", &launch_rope<Arch, Bf16>),
      row<F16, F16>("rope", &launch_rope<Arch, F16>),
      row<float, float>("rope", &launch_rope<Arch, float>),
  };
  static constexpr Row<ActivationArgs> activation[] = {
      row<Bf16, Bf16>("activation", &launch_activation<Arch, Bf16>),
      row<F16, F16>("activation", &launch_activation<Arch, F16>),
      row<float, float>("activation", &launch_activation<Arch, float>),
  };
  static constexpr Row<SoftmaxArgs> softmax[] = {
      row<Bf16, Bf16>("softmax", &launch_softmax<Arch, Bf16>),
      row<F16, F16>("softmax", &launch_softmax<Arch, F16>),
      row<float, float>("softmax", &launch_softmax<Arch, float>),
  };
  static constexpr Row<EmbeddingArgs> embedding[] = {
      row<Bf16, Bf16>("embedding", &launch_embedding<Arch, Bf16>),
      row<F16, F16>("embedding", &launch_embedding<Arch, F16>),
      row<float, float>("embedding", &launch_embedding<Arch, float>),
  };
  static constexpr Row<CopyArgs> copy[] = {
      copy_row<uint8_t>(),
      copy_row<F16>(),
      copy_row<int32_t>(),
      copy_row<int64_t>(),
      row<Bf16, F16>("copy", &launch_convert<Arch, Bf16, F16>),
      row<Bf16, float>("copy", &launch_convert<Arch, Bf16, float>),
      row<F16, Bf16>("copy", &launch_convert<Arch, F16, Bf16>),
      row<F16, float>("copy", &launch_convert<Arch, F16, float>),
      row<float, Bf16>("copy", &launch_convert<Arch, float, Bf16>),
      row<float, F16>("copy", &launch_convert<Arch, float, F16>),
  };
  static constexpr Row<QuantizeArgs> quantize[] = {
      row<Bf16, int8_t>("quantize", &launch_quantize<Arch, Bf16, int8_t>),
      row<Bf16, uint8_t>("quantize", &launch_quantize<Arch, Bf16, uint8_t>),
      row<Bf16, I4x2>("quantize", &launch_quantize<Arch, Bf16, I4x2>),
      row<Bf16, E4m3>("quantize", &launch_quantize<Arch, Bf16, E4m3>),
      row<Bf16, E5m2>("quantize", &launch_quantize<Arch, Bf16, E5m2>),
      row<F16, int8_t>("quantize", &launch_quantize<Arch, F16, int8_t>),
      row<F16, uint8_t>("quantize", &launch_quantize<Arch, F16, uint8_t>),
      row<F16, I4x2>("quantize", &launch_quantize<Arch, F16, I4x2>),
      row<F16, E4m3>("quantize", &launch_quantize<Arch, F16, E4m3>),
      row<F16, E5m2>("quantize", &launch_quantize<Arch, F16, E5m2>),
      row<float, int8_t>("quantize", &launch_quantize<Arch, float, int8_t>),
      row<float, uint8_t>("quantize", &launch_quantize<Arch, float, uint8_t>),
      row<float, I4x2>("quantize", &launch_quantize<Arch, float, I4x2>),
      row<float, E4m3>("quantize", &launch_quantize<Arch, float, E4m3>),
      row<float, E5m2>("quantize", &launch_quantize<Arch, float, E5m2>),
  };
  static constexpr Row<DequantizeArgs> dequantize[] = {
      row<int8_t, Bf16>("dequantize", &launch_dequantize<Arch, int8_t, Bf16>),
      row<uint8_t, Bf16>("dequantize", &launch_dequantize<Arch, uint8_t, Bf16>),
      row<I4x2, Bf16>("dequantize", &launch_dequantize<Arch, I4x2, Bf16>),
      row<E4m3, Bf16>("dequantize", &launch_dequantize<Arch, E4m3, Bf16>),
      row<E5m2, Bf16>("dequantize", &launch_dequantize<Arch, E5m2, Bf16>),
      row<int8_t, F16>("dequantize", &launch_dequantize<Arch, int8_t, F16>),
      row<uint8_t, F16>("dequantize", &launch_dequantize<Arch, uint8_t, F16>),
      row<I4x2, F16>("dequantize", &launch_dequantize<Arch, I4x2, F16>),
      row<E4m3, F16>("dequantize", &launch_dequantize<Arch, E4m3, F16>),
      row<E5m2, F16>("dequantize", &launch_dequantize<Arch, E5m2, F16>),
      row<int8_t, float>("dequantize", &launch_dequantize<Arch, int8_t, float>),
      row<uint8_t, float>("dequantize", &launch_dequantize<Arch, uint8_t, float>),
      row<I4x2, float>("dequantize", &launch_dequantize<Arch, I4x2, float>),
      row<E4m3, float>("dequantize", &launch_dequantize<Arch, E4m3, float>),
      row<E5m2, float>("dequantize", &launch_dequantize<Arch, E5m2, float>),
  };
  static constexpr Row<ReduceArgs> reduce[] = {
      row<Bf16, float>("reduce", &launch_reduce<Arch, Bf16>),
      row<F16, float>("reduce", &launch_reduce<Arch, F16>),
      row<float, float>("reduce", &launch_reduce<Arch, float>),
  };
  static constexpr Row<ArgmaxArgs> argmax[] = {
      row<Bf16, Bf16>("argmax", &launch_argmax<Arch, Bf16>),
      row<F16, F16>("argmax", &launch_argmax<Arch, F16>),
      row<float, float>("argmax", &launch_argmax<Arch, float>),
  };

  static constexpr Row<ScaleArgs> scale[] = {
      row<Bf16, Bf16>("scale", &launch_scale<Arch, Bf16>),
      row<F16, F16>("scale", &launch_scale<Arch, F16>),
      row<float, float>("scale", &launch_scale<Arch, float>),
  };

  static constexpr ElementwiseRows rows{rms_norm,   layer_norm, rope,   activation,
                                        softmax,    embedding,  copy,   quantize,
                                        dequantize, reduce,     argmax, scale};
};

}  // namespace

#ifdef TESSERA_SM90  // otherwise rows_none_sm90.cpp has an empty one
const ElementwiseRows& elementwise_rows_sm90() { return ElementwiseTable<Sm90>::rows; }
#endif
const ElementwiseRows& elementwise_rows() { return ElementwiseTable<Portable>::rows; }

}  // namespace tessera::kernels
