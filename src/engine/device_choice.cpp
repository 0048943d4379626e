// Which device a model runs on.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "engine/make_engine.h"
#include "model/device_support.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

std::string missing_on(Device device, const model::ModelConfig& config,
                       const EngineOptions& options) {
  return model::find_missing_operation(
      config,
      {.dtype = options.dtype,
       .weights = options.use_int8_weights ? model::WeightFormat::int8 : model::WeightFormat::plain,
       .kv_type = options.kv_type,
       .page_size = options.page_size},
      device);
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
  fail(concat("engine: ", to_string(device), " has no kernel for ", missing,
              ", which this model needs; use the cpu, or other types"));
}

DeviceChoice choose_device(const model::ModelConfig& config, const EngineOptions& options) {
  if (num_cuda_devices() == 0) return {.device = cpu_device(), .why_no_gpu = cuda_problem()};
  const std::string missing = missing_on(cuda_device(), config, options);
  if (missing.empty()) return {.device = cuda_device()};
  return {.device = cpu_device(),
          .why_no_gpu = concat(to_string(cuda_device()), " has no kernel for ", missing)};
}

}  // namespace tessera::engine
