// Whether a device has kernels for all that a model's forward pass calls.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"
#include "model/weights.h"
#include "tessera/core/device.h"
#include "tessera/ops/kv_format.h"

namespace tessera::model {

struct ModelTypes {
  DType dtype = DType::bf16;
  WeightFormat weights = WeightFormat::plain;
  KvFormat kv_type = KvFormat::plain;
  int64_t page_size = 16;
};

// The first operation the model needs that the device has no batch-invariant row for, with what was
// asked for: "gemm of bf16 by i8[4096, 4096] to bf16"; empty where it has all, as the CPU does. It
// asks supports(), so there is no list to keep in step.
std::string find_missing_operation(const ModelConfig& config, const ModelTypes& types,
                                   Device device);

}  // namespace tessera::model
