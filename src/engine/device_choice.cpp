// Which device a model runs on.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "engine/make_engine.h"
#include "model/model.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

std::string missing_on(Device device, const model::ModelConfig& config,
                       const EngineOptions& options) {
  return model::find_missing_operation(
      config, {.dtype = options.dtype, .format = options.weights, .device = device},
      options.kv_type, options.page_size);
}

}  // namespace

void check_device(const model::ModelConfig& config, const EngineOptions& options) {
  const Device device = options.device;
  if (device.is_cpu()) return;
  const int num_devices = num_cuda_devices();
  if (device.index < 0 || device.index >= num_devices) {
    fail(concat("engine: ", to_string(device), " was asked for; ",
                num_devices > 0 ? concat("this machine has ", num_devices, " CUDA devices")
                : cuda_problem().empty()
                    ? std::string("no CUDA device was found, or this build has no CUDA")
                    : cuda_problem(),
                "; or use the cpu"));
  }
  const std::string missing = missing_on(device, config, options);
  if (missing.empty()) return;
  fail(concat("engine: this model needs an operation that ", to_string(device),
              " does not have; use the cpu, or other types: ", missing));
}

DeviceChoice choose_device(const model::ModelConfig& config, const EngineOptions& options) {
  if (num_cuda_devices() == 0) return {.device = cpu_device(), .why_no_gpu = cuda_problem()};
  const std::string missing = missing_on(cuda_device(), config, options);
  if (missing.empty()) return {.device = cuda_device()};
  return {.device = cpu_device(),
          .why_no_gpu = concat(to_string(cuda_device()), " lacks an operation: ", missing)};
}

}  // namespace tessera::engine
