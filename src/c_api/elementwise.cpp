// The elementwise family over DLPack tensors: translate, then call the C++ operation.
// SPDX-License-Identifier: MIT
#include "c_api/call.h"
#include "c_api/dlpack.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/reduce.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/softmax.h"

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_rms_norm(const DLTensor* x, const DLTensor* weight, const DLTensor* out,
                               const DLTensor* residual, const DLTensor* static_scale,
                               const DLTensor* token_scale, float eps, int32_t out_format,
                               const TesseraContext* ctx) {
  return guarded([&] {
    const RmsNormArgs args{
        .x = required_view(x, {"rms_norm", "x"}),
        .weight = required_view(weight, {"rms_norm", "weight"}),
        .out = required_view(out, {"rms_norm", "out"}, out_format),
        .residual = optional_view(residual, {"rms_norm", "residual"}),
        .static_scale = optional_view(static_scale, {"rms_norm", "static_scale"}),
        .token_scale = optional_view(token_scale, {"rms_norm", "token_scale"}),
        .eps = eps};
    call("rms_norm", &rms_norm, args, ctx);
  });
}

TesseraStatus tessera_layer_norm(const DLTensor* x, const DLTensor* weight, const DLTensor* bias,
                                 const DLTensor* out, const DLTensor* residual,
                                 const DLTensor* static_scale, const DLTensor* token_scale,
                                 float eps, int32_t out_format, const TesseraContext* ctx) {
  return guarded([&] {
    const LayerNormArgs args{
        .x = required_view(x, {"layer_norm", "x"}),
        .weight = required_view(weight, {"layer_norm", "weight"}),
        .bias = optional_view(bias, {"layer_norm", "bias"}),
        .out = required_view(out, {"layer_norm", "out"}, out_format),
        .residual = optional_view(residual, {"layer_norm", "residual"}),
        .static_scale = optional_view(static_scale, {"layer_norm", "static_scale"}),
        .token_scale = optional_view(token_scale, {"layer_norm", "token_scale"}),
        .eps = eps};
    call("layer_norm", &layer_norm, args, ctx);
  });
}

TesseraStatus tessera_rope(const DLTensor* q, const DLTensor* k, const DLTensor* positions,
                           const DLTensor* table, int32_t style, const TesseraContext* ctx) {
  return guarded([&] {
    const RopeArgs args{.q = required_view(q, {"rope", "q"}),
                        .k = optional_view(k, {"rope", "k"}),
                        .positions = required_view(positions, {"rope", "positions"}),
                        .table = required_view(table, {"rope", "table"}),
                        .style = to_enum(style, RopeStyle::interleaved, "rope: style")};
    call("rope", &rope, args, ctx);
  });
}

TesseraStatus tessera_make_rope_table(const DLTensor* table, double theta,
                                      const TesseraRopeScaling* scaling) {
  return guarded([&] {
    const TensorView out = required_view(table, {"make_rope_table", "table"});
    if (out.rank != 2 || out.dtype != DType::f32 || !out.device.is_cpu()) {
      fail(concat("make_rope_table: table is ", to_string(out),
                  "; want f32[num_positions, rotary_dim] on cpu"));
    }
    RopeScaling how;
    if (scaling != nullptr) {
      if (scaling->struct_size < sizeof(TesseraRopeScaling)) {
        fail(concat("TesseraRopeScaling.struct_size is ", scaling->struct_size,
                    "; set it to sizeof, ", sizeof(TesseraRopeScaling)));
      }
      how = {.kind = to_enum(scaling->kind, RopeScalingKind::yarn, "make_rope_table: kind"),
             .factor = scaling->factor,
             .low_freq_factor = scaling->low_freq_factor,
             .high_freq_factor = scaling->high_freq_factor,
             .original_max_positions = scaling->original_max_positions,
             .beta_fast = scaling->beta_fast,
             .beta_slow = scaling->beta_slow,
             .attention_factor = {}};
      if (scaling->attention_factor != 0) how.attention_factor = scaling->attention_factor;
    }
    copy({.x = make_rope_table(out.size(0), out.size(1), theta, how), .out = out}, {});
  });
}

TesseraStatus tessera_activation(const DLTensor* x, const DLTensor* up, const DLTensor* out,
                                 int32_t kind, const TesseraContext* ctx) {
  return guarded([&] {
    const ActivationArgs args{.x = required_view(x, {"activation", "x"}),
                              .up = optional_view(up, {"activation", "up"}),
                              .out = required_view(out, {"activation", "out"}),
                              .kind = to_enum(kind, Activation::gelu_tanh, "activation: kind")};
    call("activation", &activation, args, ctx);
  });
}

TesseraStatus tessera_softmax(const DLTensor* x, const DLTensor* mask, const DLTensor* out,
                              float scale, const TesseraContext* ctx) {
  return guarded([&] {
    const SoftmaxArgs args{.x = required_view(x, {"softmax", "x"}),
                           .out = required_view(out, {"softmax", "out"}),
                           .mask = optional_view(mask, {"softmax", "mask"}),
                           .scale = scale};
    call("softmax", &softmax, args, ctx);
  });
}

TesseraStatus tessera_embedding(const DLTensor* table, const DLTensor* ids, const DLTensor* out,
                                const TesseraContext* ctx) {
  return guarded([&] {
    const EmbeddingArgs args{.table = required_view(table, {"embedding", "table"}),
                             .ids = required_view(ids, {"embedding", "ids"}),
                             .out = required_view(out, {"embedding", "out"})};
    call("embedding", &embedding, args, ctx);
  });
}

TesseraStatus tessera_copy(const DLTensor* x, const DLTensor* out, const TesseraContext* ctx) {
  return guarded([&] {
    const CopyArgs args{.x = required_view(x, {"copy", "x"}),
                        .out = required_view(out, {"copy", "out"})};
    call("copy", &copy, args, ctx);
  });
}

TesseraStatus tessera_quantize(const DLTensor* x, const DLTensor* out, const DLTensor* scale,
                               const DLTensor* zero_point, int32_t mode, int32_t out_format,
                               const TesseraContext* ctx) {
  return guarded([&] {
    const QuantizeArgs args{.x = required_view(x, {"quantize", "x"}),
                            .out = required_view(out, {"quantize", "out"}, out_format),
                            .scale = required_view(scale, {"quantize", "scale"}),
                            .zero_point = optional_view(zero_point, {"quantize", "zero_point"}),
                            .mode = to_enum(mode, ScaleMode::fixed, "quantize: mode")};
    call("quantize", &quantize, args, ctx);
  });
}

TesseraStatus tessera_dequantize(const DLTensor* x, const DLTensor* scale,
                                 const DLTensor* zero_point, const DLTensor* out, int32_t x_format,
                                 const TesseraContext* ctx) {
  return guarded([&] {
    const DequantizeArgs args{.x = required_view(x, {"dequantize", "x"}, x_format),
                              .scale = required_view(scale, {"dequantize", "scale"}),
                              .zero_point = optional_view(zero_point, {"dequantize", "zero_point"}),
                              .out = required_view(out, {"dequantize", "out"})};
    call("dequantize", &dequantize, args, ctx);
  });
}

TesseraStatus tessera_reduce(const DLTensor* x, const DLTensor* out, int32_t kind,
                             const TesseraContext* ctx) {
  return guarded([&] {
    const ReduceArgs args{.x = required_view(x, {"reduce", "x"}),
                          .out = required_view(out, {"reduce", "out"}),
                          .kind = to_enum(kind, Reduction::absmax, "reduce: kind")};
    call("reduce", &reduce, args, ctx);
  });
}

TesseraStatus tessera_argmax(const DLTensor* x, const DLTensor* out, const TesseraContext* ctx) {
  return guarded([&] {
    const ArgmaxArgs args{.x = required_view(x, {"argmax", "x"}),
                          .out = required_view(out, {"argmax", "out"})};
    call("argmax", &argmax, args, ctx);
  });
}
