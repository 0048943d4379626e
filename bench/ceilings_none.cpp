// The CUDA half of the ceilings in a build without CUDA.
// SPDX-License-Identifier: MIT
#include "bench/ceilings.h"

namespace tessera::bench {

Ceilings measure_cuda_ceilings(Device) {
  Ceilings none;
  none.note = "this build has no CUDA";
  return none;
}
std::string pci_bus_id(Device) { return {}; }

}  // namespace tessera::bench
