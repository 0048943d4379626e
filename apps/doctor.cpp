// `tessera doctor`: what this machine has, what it was measured to do, and what runs on it.
// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "apps/verbs.h"
#include "bench/bench.h"
#include "bench/ceilings.h"
#include "bench/power.h"
#include "bench/report.h"
#include "ops/registry.h"

namespace tessera::apps {
namespace {

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void print(std::string_view what, std::string_view value) {
  std::printf("  %-18.*s %.*s\n", static_cast<int>(what.size()), what.data(),
              static_cast<int>(value.size()), value.data());
}

double memory_gib() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kib = 0;
  file >> name >> kib;
  return kib / (1 << 20);
}

void print_cpu() {
  std::cout << "CPU\n";
  print("model", bench::cpu_name());
  print("threads", std::to_string(std::thread::hardware_concurrency()));
  print("memory", fixed(memory_gib(), 1) + " GiB");
  const bench::Ceilings ceilings = bench::measure_ceilings(cpu_device());
  print("measured read", fixed(ceilings.read_tbs * 1e3, 1) + " GB/s");
  print("measured copy", fixed(ceilings.copy_tbs * 1e3, 1) + " GB/s, read plus written");
}

void print_gpu(Device device) {
  const DeviceInfo& info = device_info(device);
  const bench::Machine machine = bench::describe_machine(device);
  std::cout << "GPU " << device.index << "\n";
  print("name", info.name);
  print("capability", fixed(info.compute_capability / 10.0, 1));
  print("multiprocessors", std::to_string(info.num_sms));
  print("memory", fixed(static_cast<double>(info.memory_bytes) / (1 << 30), 1) + " GiB");
  print("L2 cache", fixed(static_cast<double>(info.l2_bytes) / (1 << 20), 0) + " MiB");
  print("driver", machine.driver + ", CUDA up to " + cuda_driver_version());
  const bench::Ceilings ceilings = bench::measure_ceilings(device);
  print("measured read", fixed(ceilings.read_tbs, 2) + " TB/s");
  print("measured copy", fixed(ceilings.copy_tbs, 2) + " TB/s, read plus written");
  print("measured matrix", ceilings.bf16_tflops > 0
                               ? fixed(ceilings.bf16_tflops, 0) + " TFLOPS, bf16 8192 cubed"
                               : "not measured: " + ceilings.note);
}

// How many rows of a library there are, and how many this GPU (0: none) can run.
void print_rows(std::string_view label, Library library, int compute_capability) {
  int count = 0;
  for (const ops::RowInfo& row : ops::all_rows()) count += row.library == library ? 1 : 0;
  std::string text = std::to_string(count) + " rows";
  if (count == 0) {
    text = "not in this build";
  } else if (compute_capability == 0) {
    text += "; none can run without a GPU";
  } else if (runs_on(library, compute_capability)) {
    text += "; all run on this GPU";
  } else {
    text += "; none run on this GPU";
  }
  print(label, text);
}

void run_doctor() {
  print_cpu();
  const int num_gpus = num_cuda_devices();
  for (int i = 0; i < num_gpus; ++i) print_gpu(cuda_device(i));
  const std::string runtime = cuda_runtime_version();
  if (num_gpus == 0) {
    std::cout << "GPU\n";
    print("none", runtime.empty() ? "this build has no CUDA, so no GPU can be used"
                                  : "no CUDA device or driver was found");
  }
  std::cout << "Tessera " << TESSERA_VERSION << "\n";
  const std::string toolkit = TESSERA_TOOLKIT;
  print("CUDA toolkit", toolkit.empty() ? "none: built without CUDA" : "built with " + toolkit);
  print("CUDA runtime", runtime.empty() ? "none" : runtime);
  const int capability = num_gpus == 0 ? 0 : device_info(cuda_device()).compute_capability;
  print_rows("sm90 library", Library::sm90, capability);
  print_rows("portable library", Library::portable, capability);
  print("CPU library", std::to_string(bench::problem_makers().size()) + " operations, all dtypes");
  std::cout << (num_gpus == 0
                    ? "Every operation runs here on the CPU. GPU kernels are built where a CUDA\n"
                      "toolkit is found, and run where there is an NVIDIA GPU of capability 8.0 "
                      "or more.\n"
                    : "Views in GPU memory run on the GPU, views in CPU memory on the CPU.\n");
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  app.add_subcommand("doctor", "Shows this machine: CPU, GPU, measured rates, what is supported")
      ->callback([] { run_doctor(); });
}

}  // namespace tessera::apps
