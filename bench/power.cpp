// NVML by dlopen, with the few declarations needed: the library comes with the driver, its header
// only with the toolkit.
// SPDX-License-Identifier: MIT
#include "bench/power.h"

#include <dlfcn.h>

namespace tessera::bench {
namespace {

using NvmlDevice = struct nvmlDevice_st*;
constexpr int kSuccess = 0;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;

}  // namespace

struct PowerMeter::Nvml {
  void* library = nullptr;
  NvmlDevice device = nullptr;
  int (*shutdown)() = nullptr;
  int (*get_energy)(NvmlDevice, unsigned long long* millijoules) = nullptr;
  int (*get_power)(NvmlDevice, unsigned* milliwatts) = nullptr;
  int (*get_clock)(NvmlDevice, int type, unsigned* mhz) = nullptr;
  int (*get_driver)(char* version, unsigned length) = nullptr;

  template <class Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
  }
};

PowerMeter::PowerMeter(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  auto nvml = std::make_unique<Nvml>();
  nvml->library = library;
  int (*init)() = nullptr;
  int (*get_device)(const char*, NvmlDevice*) = nullptr;
  nvml->load(init, "nvmlInit_v2");
  nvml->load(get_device, "nvmlDeviceGetHandleByPciBusId_v2");
  nvml->load(nvml->shutdown, "nvmlShutdown");
  nvml->load(nvml->get_energy, "nvmlDeviceGetTotalEnergyConsumption");
  nvml->load(nvml->get_power, "nvmlDeviceGetPowerUsage");
  nvml->load(nvml->get_clock, "nvmlDeviceGetClockInfo");
  nvml->load(nvml->get_driver, "nvmlSystemGetDriverVersion");
  if (init == nullptr || nvml->shutdown == nullptr || init() != kSuccess) {
    dlclose(library);
    return;
  }
  if (get_device == nullptr || get_device(pci_bus_id.c_str(), &nvml->device) != kSuccess) {
    nvml->device = nullptr;
  }
  nvml_ = std::move(nvml);
}

PowerMeter::~PowerMeter() {
  if (!nvml_) return;
  nvml_->shutdown();
  dlclose(nvml_->library);
}

std::optional<double> PowerMeter::energy_joules() const {
  unsigned long long millijoules = 0;
  if (!nvml_ || nvml_->device == nullptr || nvml_->get_energy == nullptr ||
      nvml_->get_energy(nvml_->device, &millijoules) != kSuccess) {
    return std::nullopt;
  }
  return static_cast<double>(millijoules) * 1e-3;
}

std::optional<double> PowerMeter::power_watts() const {
  unsigned milliwatts = 0;
  if (!nvml_ || nvml_->device == nullptr || nvml_->get_power == nullptr ||
      nvml_->get_power(nvml_->device, &milliwatts) != kSuccess) {
    return std::nullopt;
  }
  return milliwatts * 1e-3;
}

std::optional<int> PowerMeter::sm_clock_mhz() const {
  unsigned mhz = 0;
  if (!nvml_ || nvml_->device == nullptr || nvml_->get_clock == nullptr ||
      nvml_->get_clock(nvml_->device, kClockSm, &mhz) != kSuccess) {
    return std::nullopt;
  }
  return static_cast<int>(mhz);
}

std::optional<int> PowerMeter::memory_clock_mhz() const {
  unsigned mhz = 0;
  if (!nvml_ || nvml_->device == nullptr || nvml_->get_clock == nullptr ||
      nvml_->get_clock(nvml_->device, kClockMemory, &mhz) != kSuccess) {
    return std::nullopt;
  }
  return static_cast<int>(mhz);
}

std::string PowerMeter::driver_version() const {
  char version[96] = {};
  if (!nvml_ || nvml_->get_driver == nullptr ||
      nvml_->get_driver(version, sizeof version) != kSuccess) {
    return {};
  }
  return version;
}

}  // namespace tessera::bench
