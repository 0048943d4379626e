// Energy, power, clocks and the driver's version of a GPU, by NVML loaded at run time.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace tessera::bench {

// Every answer is empty where the library, the GPU or the counter is missing.
class PowerMeter {
 public:
  // `pci_bus_id` as the CUDA runtime spells it: NVML counts devices in its own order.
  explicit PowerMeter(const std::string& pci_bus_id);
  ~PowerMeter();

  std::optional<double> energy_joules() const;  // since the driver was loaded
  std::optional<double> power_watts() const;    // now
  std::optional<int> sm_clock_mhz() const;
  std::optional<int> memory_clock_mhz() const;
  std::string driver_version() const;

 private:
  struct Nvml;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace tessera::bench
