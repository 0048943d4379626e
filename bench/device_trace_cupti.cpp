// CUPTI's activity records, on the clock of this process. The library is part of the toolkit and
// not of the driver, so it is loaded at run time, and only where a trace is wanted.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/device_trace.h"
#include "core/cuda_check.h"
#include "core/launch_log.h"
#include "core/op_log.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20, kBufferAlign = 8;

// Concurrent kernels are recorded one by one inside graphs too; other kinds show graphs as a whole.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME};

uint64_t CUPTIAPI now_ns() { return static_cast<uint64_t>(steady_now_ns()); }

std::vector<std::string> library_paths() {
  std::vector<std::string> paths = {"libcupti.so.13", "libcupti.so"};
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) roots.emplace_back(root);
  }
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    for (const char* folder : {"extras/CUPTI/lib64", "lib64", "lib", "targets/x86_64-linux/lib"}) {
      paths.push_back(concat(root, "/", folder, "/libcupti.so"));
    }
  }
  return paths;
}

// The functions that are used.
struct Cupti {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetResultString) get_result_string = nullptr;
  decltype(&cuptiGetCallbackName) get_callback_name = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;

  void check(CUptiResult result, const char* call) const {
    if (result == CUPTI_SUCCESS) return;
    const char* why = nullptr;
    if (get_result_string(result, &why) != CUPTI_SUCCESS || why == nullptr) why = "unknown";
    fail(concat("the GPU cannot be traced: ", call, " failed: ", why,
                "; another profiler may be attached to this process"));
  }
};

Cupti load_cupti() {
  void* library = nullptr;
  std::string looked;
  for (const std::string& path : library_paths()) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    looked += concat(looked.empty() ? "" : ", ", path);
  }
  if (library == nullptr) {
    fail(concat("the GPU cannot be traced: libcupti.so was not found (looked for ", looked,
                "); install the toolkit's CUPTI (package cuda-cupti), or set CUDA_HOME"));
  }
  Cupti cupti;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) {
      fail(concat("the GPU cannot be traced: libcupti.so has no ", name,
                  "; install that of CUDA 13.0 or newer"));
    }
  };
  find(cupti.get_version, "cuptiGetVersion");
  find(cupti.get_result_string, "cuptiGetResultString");
  find(cupti.get_callback_name, "cuptiGetCallbackName");
  find(cupti.register_timestamp, "cuptiActivityRegisterTimestampCallback");
  find(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(cupti.enable, "cuptiActivityEnable");
  find(cupti.disable, "cuptiActivityDisable");
  find(cupti.flush, "cuptiActivityFlushAll");
  find(cupti.next_record, "cuptiActivityGetNextRecord");
  uint32_t version = 0;
  cupti.check(cupti.get_version(&version), "cuptiGetVersion");
  if (version < CUPTI_API_VERSION) {
    fail(concat("the GPU cannot be traced: libcupti.so has version ", version,
                ", and this build needs ", CUPTI_API_VERSION, " or newer"));
  }
  return cupti;
}

std::string copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy on the device";
    default: return "copy";
  }
}

// CUPTI calls plain functions from a thread of its own, so what they fill is one object.
struct Collector {
  bool is_ready = false;
  std::mutex mutex;
  Cupti cupti;
  std::vector<Activity> device;
  std::vector<uint32_t> correlations;              // of `device`
  std::unordered_map<uint32_t, int64_t> launches;  // correlation: the host's call
  std::vector<Span> api;
  size_t num_dropped = 0;  // records whose times could not be read

  // Kernel, Memcpy and Memset records name their common fields alike.
  template <class Record>
  void add(const Record& record, Activity activity) {
    if (record.start == 0 || record.end == 0) {
      ++num_dropped;
      return;
    }
    activity.begin_ns = static_cast<int64_t>(record.start);
    activity.end_ns = static_cast<int64_t>(record.end);
    activity.stream = record.streamId;
    activity.is_in_graph = record.graphId != 0;
    device.push_back(std::move(activity));
    correlations.push_back(record.correlationId);
  }

  void add(const CUpti_ActivityAPI& record) {
    launches[record.correlationId] = static_cast<int64_t>(record.start);
    const char* name = nullptr;
    if (cupti.get_callback_name(CUPTI_CB_DOMAIN_RUNTIME_API, record.cbid, &name) != CUPTI_SUCCESS) {
      name = nullptr;
    }
    api.push_back({.name = name == nullptr ? "call" : name,
                   .begin_ns = static_cast<int64_t>(record.start),
                   .end_ns = static_cast<int64_t>(record.end)});
  }

  void add(CUpti_Activity* any) {
    switch (any->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& record = *reinterpret_cast<CUpti_ActivityKernel10*>(any);
        const char* symbol = record.name == nullptr ? "" : record.name;
        add(record, {.name = short_kernel_name(symbol), .symbol = symbol});
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& record = *reinterpret_cast<CUpti_ActivityMemcpy6*>(any);
        add(record, {.kind = ActivityKind::copy,
                     .name = copy_name(record.copyKind),
                     .bytes = static_cast<int64_t>(record.bytes)});
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& record = *reinterpret_cast<CUpti_ActivityMemset4*>(any);
        add(record, {.kind = ActivityKind::fill,
                     .name = "fill",
                     .bytes = static_cast<int64_t>(record.bytes)});
        break;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME: add(*reinterpret_cast<CUpti_ActivityAPI*>(any)); break;
      default: break;
    }
  }
};

// Never destroyed: CUPTI's thread may outlive static objects.
Collector& collector() {
  static auto& only = *new Collector;
  return only;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlign, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Collector& all = collector();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (valid > 0 && all.cupti.next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
    all.add(record);
  }
  std::free(buffer);
}

class CuptiTracer final : public DeviceTracer {
 public:
  CuptiTracer() {
    Collector& all = collector();
    if (all.is_ready) return;
    all.cupti = load_cupti();
    all.cupti.check(all.cupti.register_timestamp(&now_ns),
                    "cuptiActivityRegisterTimestampCallback");
    all.cupti.check(all.cupti.register_callbacks(&give_buffer, &take_buffer),
                    "cuptiActivityRegisterCallbacks");
    all.is_ready = true;
  }

  void start() override {
    Collector& all = collector();
    {
      const std::lock_guard lock(all.mutex);
      all.device.clear();
      all.correlations.clear();
      all.launches.clear();
      all.api.clear();
      all.num_dropped = 0;
    }
    for (const CUpti_ActivityKind kind : kKinds) {
      all.cupti.check(all.cupti.enable(kind), "cuptiActivityEnable");
    }
  }

  void stop(Trace& trace) override {
    Collector& all = collector();
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    all.cupti.check(all.cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    for (const CUpti_ActivityKind kind : kKinds) {
      all.cupti.check(all.cupti.disable(kind), "cuptiActivityDisable");
    }
    const std::lock_guard lock(all.mutex);
    if (all.num_dropped > 0) {
      fail(concat("the trace is not whole: CUPTI gave no times for ", all.num_dropped, " of ",
                  all.num_dropped + all.device.size(), " pieces of work"));
    }
    for (size_t i = 0; i < all.device.size(); ++i) {
      const auto launch = all.launches.find(all.correlations[i]);
      if (launch != all.launches.end()) all.device[i].launch_ns = launch->second;
      trace.device.push_back(std::move(all.device[i]));
    }
    trace.api.insert(trace.api.end(), all.api.begin(), all.api.end());
    all.device.clear();
  }
};

}  // namespace

std::unique_ptr<DeviceTracer> make_device_tracer() { return std::make_unique<CuptiTracer>(); }

}  // namespace tessera::bench
