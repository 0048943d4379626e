// The elementwise family on the CPU: the fallback, and the reference the GPU rows are tested
// against. Arguments have been checked by src/ops; every tensor is in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/activation.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/reduce.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/scale.h"
#include "tessera/ops/softmax.h"
#include "tessera/ops/weight.h"

namespace tessera::cpu {

void rms_norm(const RmsNormArgs& args);
void layer_norm(const LayerNormArgs& args);
void rope(const RopeArgs& args);
void activation(const ActivationArgs& args);
void softmax(const SoftmaxArgs& args);
void embedding(const EmbeddingArgs& args);
void copy(const CopyArgs& args);
void quantize(const QuantizeArgs& args);
void dequantize(const DequantizeArgs& args);
// Rows [begin, end) of a quantised weight, of any packing, as floats [end - begin, k].
void dequantize_rows(const Weight& weight, int64_t begin, int64_t end, float* out);
void reduce(const ReduceArgs& args);
void argmax(const ArgmaxArgs& args);
void scale(const ScaleArgs& args);

}  // namespace tessera::cpu
