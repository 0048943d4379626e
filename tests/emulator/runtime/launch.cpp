// Registration of kernels by nvcc's start-up code, and their launches.
// SPDX-License-Identifier: MIT
#include "tests/emulator/launch.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulator/fat_binary.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/module.h"
#include "tests/emulator/runtime/state.h"

namespace tessera::emulator {
namespace {

constexpr size_t kMaxShared = 227 * 1024;
constexpr unsigned kMaxThreads = 1024, kMaxClusterBlocks = 16, kMaxGridYz = 65535;

// A module is parsed when one of its kernels is needed, so that a program starts at once.
struct LazyModule {
  const void* fat_binary;
  std::unique_ptr<Module> parsed;
};

struct Function {
  LazyModule* module;
  std::string name;
};

struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<LazyModule>> modules;
  std::unordered_map<const void*, Function> functions;  // by their stubs on the host
};

// Start-up code of other files may come first, so this cannot be a variable.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// Null if nvcc did not register it. A kernel whose PTX cannot be read ends the program, since
// whatever ran in its place would be wrong.
Kernel* find_kernel(const void* stub) {
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  const auto found = all.functions.find(stub);
  if (found == all.functions.end()) return nullptr;
  try {
    const Function& function = found->second;
    if (function.module->parsed == nullptr) {
      function.module->parsed = parse_module(find_ptx(function.module->fat_binary));
    }
    const auto kernel = function.module->parsed->kernels.find(function.name);
    if (kernel == function.module->parsed->kernels.end()) return nullptr;
    build_kernel(kernel->second);
    return &kernel->second;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emulator: %s: %s\n", found->second.name.c_str(), error.what());
    std::abort();
  }
}

cudaError_t error_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::illegal_address: return cudaErrorIllegalAddress;
    case FaultKind::misaligned_address: return cudaErrorMisalignedAddress;
    case FaultKind::illegal_instruction: return cudaErrorIllegalInstruction;
    case FaultKind::launch_failure: return cudaErrorLaunchFailure;
    case FaultKind::timeout: return cudaErrorLaunchTimeout;
  }
  return cudaErrorUnknown;
}

Extent to_extent(dim3 extent) { return {extent.x, extent.y, extent.z}; }

cudaError_t check_shape(const Kernel& kernel, const Launch& launch) {
  const uint64_t threads = volume(launch.block);
  const bool is_block_wrong =
      threads == 0 || threads > kMaxThreads || threads > static_cast<uint64_t>(kernel.max_threads);
  const bool is_grid_wrong =
      volume(launch.grid) == 0 || launch.grid[1] > kMaxGridYz || launch.grid[2] > kMaxGridYz;
  if (is_block_wrong || is_grid_wrong) return cudaErrorInvalidConfiguration;
  const auto static_bytes = static_cast<size_t>(kernel.static_shared_bytes);
  if (static_bytes + launch.dynamic_shared_bytes > kMaxShared) return cudaErrorInvalidValue;
  for (size_t i = 0; i < 3; ++i) {
    if (launch.cluster[i] == 0 || launch.grid[i] % launch.cluster[i] != 0) {
      return cudaErrorInvalidClusterSize;
    }
  }
  return volume(launch.cluster) > kMaxClusterBlocks ? cudaErrorInvalidClusterSize : cudaSuccess;
}

// TESSERA_EMULATOR_TRACE: kernels whose name contains it print every instruction.
bool is_traced(const Kernel& kernel) {
  const char* part = std::getenv("TESSERA_EMULATOR_TRACE");
  return part != nullptr && *part != '\0' && kernel.name.find(part) != std::string::npos;
}

void run(Launch launch, const std::vector<char>& parameters) {
  // TESSERA_EMULATOR_SEED: other orders of warps and copies, and of blocks.
  static const long seed = environment("TESSERA_EMULATOR_SEED", 0);
  static uint64_t num_launches = 0;
  launch.random.seed(static_cast<uint64_t>(seed) + ++num_launches * 1'000'003);
  launch.shuffles_blocks = seed != 0;
  launch.is_traced = is_traced(*launch.kernel);
  const DeviceMemory memory(parameters.size());  // kernels may take the address of a parameter
  std::memcpy(memory.data(), parameters.data(), parameters.size());
  launch.parameters = memory.data();
  try {
    run_launch(launch);
  } catch (const Fault& fault) {
    report_fault(error_of(fault.kind()), fault.what());
  }
}

cudaError_t launch_kernel(const void* stub, Launch launch, void** arguments, cudaStream_t stream) {
  const Kernel* const kernel = find_kernel(stub);
  if (kernel == nullptr) return finish(cudaErrorInvalidDeviceFunction);
  launch.kernel = kernel;
  const cudaError_t error = check_shape(*kernel, launch);
  if (error != cudaSuccess) return finish(error);
  std::vector<char> parameters(static_cast<size_t>(kernel->parameter_bytes) + 1);
  for (size_t i = 0; i < kernel->parameters.size(); ++i) {
    const Parameter& parameter = kernel->parameters[i];
    std::memcpy(parameters.data() + parameter.offset, arguments[i],
                static_cast<size_t>(parameter.bytes));
  }
  return submit(stream, [launch, parameters] { run(launch, parameters); });
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

}  // namespace
}  // namespace tessera::emulator

using namespace tessera::emulator;  // NOLINT: the functions of the runtime have C linkage

extern "C" {

// What nvcc's start-up code and kernel stubs call. These are not declared in any public header.
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name,
                            int thread_limit, uint3* thread_id, uint3* block_id, dim3* block,
                            dim3* grid, int* warp_size);
void __cudaRegisterVar(void** handle, char* host, char* address, const char* name, int is_extern,
                       size_t bytes, int is_constant, int is_global);
char __cudaInitModule(void** handle);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream);

void** __cudaRegisterFatBinary(void* wrapper) {
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  all.modules.push_back(std::make_unique<LazyModule>(LazyModule{wrapper, nullptr}));
  return reinterpret_cast<void**>(all.modules.back().get());
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  all.functions[stub] = {reinterpret_cast<LazyModule*>(handle), name};
}

// Nothing reads or writes variables of kernels by name.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

char __cudaInitModule(void**) { return 1; }

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  configurations.push_back({grid, block, shared_bytes, static_cast<cudaStream_t>(stream)});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  const Configuration configuration = configurations.back();
  configurations.pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  Launch launch;
  launch.grid = to_extent(grid);
  launch.block = to_extent(block);
  launch.dynamic_shared_bytes = shared_bytes;
  return launch_kernel(stub, launch, arguments, stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments,
                          shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub,
                                void** arguments) {
  Launch launch;
  launch.grid = to_extent(config->gridDim);
  launch.block = to_extent(config->blockDim);
  launch.dynamic_shared_bytes = config->dynamicSmemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    const auto& cluster = config->attrs[i].val.clusterDim;
    launch.cluster = {cluster.x, cluster.y, cluster.z};
  }
  return launch_kernel(stub, launch, arguments, config->stream);
}

cudaError_t cudaFuncGetName(const char** name, const void* stub) {
  Registry& all = registry();
  const std::lock_guard guard(all.mutex);
  const auto found = all.functions.find(stub);
  if (found == all.functions.end()) return finish(cudaErrorInvalidDeviceFunction);
  *name = found->second.name.c_str();
  return finish();
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  const Kernel* const kernel = find_kernel(stub);
  if (kernel == nullptr) return finish(cudaErrorInvalidDeviceFunction);
  constexpr int kRegisters = 64, kVersion = 90;  // PTX does not say; any plausible number
  *attributes = {};
  attributes->sharedSizeBytes = static_cast<size_t>(kernel->static_shared_bytes);
  attributes->localSizeBytes = static_cast<size_t>(kernel->local_bytes);
  attributes->maxThreadsPerBlock = kernel->max_threads;
  attributes->numRegs = kRegisters;
  attributes->ptxVersion = attributes->binaryVersion = kVersion;
  return finish();
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return finish(); }

}  // extern "C"
