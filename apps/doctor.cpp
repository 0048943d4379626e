// `tessera doctor`: the machine's hardware, its measured rates, and what runs on it.
// SPDX-License-Identifier: MIT
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "bench/bench.h"
#include "bench/ceilings.h"
#include "bench/report.h"
#include "core/build_info.h"
#include "core/parallel.h"
#include "core/text.h"
#include "ops/registry.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGib = 1 << 30;

Json known_or_null(double value) { return value > 0 ? Json(rounded(value)) : Json(nullptr); }

Json cpu_json() {
  const bench::Ceilings ceilings = bench::measure_ceilings(cpu_device());
  return {{"name", bench::cpu_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"threads", num_threads()},
          {"simd", bench::simd_name()},
          {"memory_bytes", total_memory_bytes()},
          {"available_bytes", available_memory_bytes()},
          {"read_gbs", rounded(ceilings.read_tbs * 1e3)},
          {"copy_gbs", rounded(ceilings.copy_tbs * 1e3)}};
}

Json gpu_json(Device device) {
  const DeviceInfo& info = device_info(device);
  const bench::Ceilings ceilings = bench::measure_ceilings(device);
  return {{"index", device.index},
          {"name", info.name},
          {"compute_capability", info.compute_capability / 10.0},
          {"multiprocessors", info.num_sms},
          {"memory_bytes", info.memory_bytes},
          {"l2_bytes", info.l2_bytes},
          {"driver", bench::describe_machine(device).driver},
          {"driver_cuda", cuda_driver_version()},
          {"read_tbs", rounded(ceilings.read_tbs)},
          {"copy_tbs", rounded(ceilings.copy_tbs)},
          {"bf16_tflops", known_or_null(ceilings.bf16_tflops)},
          {"note", ceilings.note}};
}

// The number of rows in a library, and whether the first GPU can run them.
Json rows_json(Library library, int compute_capability) {
  int count = 0;
  for (const ops::RowInfo& row : ops::all_rows()) count += row.library == library ? 1 : 0;
  return {{"rows", count}, {"runs_here", count > 0 && runs_on(library, compute_capability)}};
}

Json doctor_json() {
  const int num_gpus = num_cuda_devices();
  Json json = {{"version", kVersion},
               {"commit", kCommit},
               {"cpu", cpu_json()},
               {"gpus", Json::array()},
               {"cuda_problem", cuda_problem()}};
  for (int i = 0; i < num_gpus; ++i) json["gpus"].push_back(gpu_json(cuda_device(i)));
  json["cuda_toolkit"] = TESSERA_TOOLKIT;
  json["cuda_runtime"] = cuda_runtime_version();
  const int capability = num_gpus == 0 ? 0 : device_info(cuda_device()).compute_capability;
  json["sm90_library"] = rows_json(Library::sm90, capability);
  json["portable_library"] = rows_json(Library::portable, capability);
  json["cpu_operations"] = bench::problem_makers().size();
  json["bundled_model"] = bundled_model().string();
  return json;
}

std::string line(std::string_view what, std::string_view value) {
  std::string text = concat("  ", what);
  text.resize(std::max<size_t>(text.size() + 1, 21), ' ');
  return concat(text, value, "\n");
}

std::string number(const Json& json, int digits, std::string_view unit) {
  return concat(fixed(json.get<double>(), digits), " ", unit);
}

std::string gib(const Json& json) { return fixed(json.get<double>() / kGib, 1) + " GiB"; }

std::string cpu_text(const Json& cpu) {
  return concat(
      "CPU\n", line("model", cpu["name"].get<std::string>()),
      line("threads", concat(cpu["threads"], " of ", cpu["cores"])),
      line("vectors", cpu["simd"].get<std::string>()),
      line("memory", concat(gib(cpu["memory_bytes"]), ", ", gib(cpu["available_bytes"]), " free")),
      line("measured read", number(cpu["read_gbs"], 1, "GB/s")),
      line("measured copy", number(cpu["copy_gbs"], 1, "GB/s, read plus written")));
}

std::string gpu_text(const Json& gpu) {
  const std::string driver = gpu["driver"].get<std::string>();
  const std::string cuda = gpu["driver_cuda"].get<std::string>();
  return concat(
      "GPU ", gpu["index"], "\n", line("name", gpu["name"].get<std::string>()),
      line("capability", fixed(gpu["compute_capability"].get<double>(), 1)),
      line("multiprocessors", gpu["multiprocessors"].dump()),
      line("memory", gib(gpu["memory_bytes"])),
      line("L2 cache", fixed(gpu["l2_bytes"].get<double>() / (1 << 20), 0) + " MiB"),
      line("driver", concat(driver, ", CUDA up to ", cuda)),
      line("measured read", number(gpu["read_tbs"], 2, "TB/s")),
      line("measured copy", number(gpu["copy_tbs"], 2, "TB/s, read plus written")),
      line("measured matrix", gpu["bf16_tflops"].is_null()
                                  ? "not measured: " + gpu["note"].get<std::string>()
                                  : number(gpu["bf16_tflops"], 0, "TFLOPS, bf16 8192 cubed")));
}

std::string rows_text(std::string_view label, const Json& rows, bool has_gpu) {
  const int count = rows["rows"].get<int>();
  std::string text = concat(count, " rows");
  if (count == 0) {
    text = "not in this build";
  } else if (!has_gpu) {
    text += "; none can run without a GPU";
  } else {
    text += rows["runs_here"].get<bool>() ? "; all run on this GPU" : "; none run on this GPU";
  }
  return line(label, text);
}

std::string doctor_text(const Json& json) {
  const bool has_gpu = !json["gpus"].empty();
  const std::string toolkit = json["cuda_toolkit"].get<std::string>();
  const std::string runtime = json["cuda_runtime"].get<std::string>();
  const std::string model = json["bundled_model"].get<std::string>();
  std::string text = cpu_text(json["cpu"]);
  for (const Json& gpu : json["gpus"]) text += gpu_text(gpu);
  if (!has_gpu) {
    const std::string problem = json["cuda_problem"].get<std::string>();
    text += "GPU\n" + line("none", runtime.empty() ? "this build has no CUDA, so no GPU can be used"
                                   : problem.empty() ? "no CUDA device or driver was found"
                                                     : problem);
  }
  text += concat("Tessera ", kVersion, ", commit ", kCommit, "\n");
  text +=
      line("CUDA toolkit", toolkit.empty() ? "none: built without CUDA" : "built with " + toolkit);
  text += line("CUDA runtime", runtime.empty() ? "none" : runtime);
  text += rows_text("sm90 library", json["sm90_library"], has_gpu);
  text += rows_text("portable library", json["portable_library"], has_gpu);
  text +=
      line("CPU library", concat("all operations; tessera bench times ", json["cpu_operations"]));
  text += line("bundled model", model.empty() ? "not found" : model);
  text += has_gpu ? "Views in GPU memory run on the GPU, views in CPU memory on the CPU.\n"
                  : "Every operation runs here on the CPU. GPU kernels are built where a CUDA\n"
                    "toolkit is found, and run where there is an NVIDIA GPU of capability 8.0 "
                    "or more.\n";
  return text;
}

}  // namespace

void add_doctor(CLI::App& app, int&) {
  const auto is_json = std::make_shared<bool>(false);
  Verb verb(app, "doctor", "Shows this machine: CPU, GPU, measured rates, what runs here");
  FlagSet flags(verb, "Output");
  flags.toggle("--json", *is_json, "One JSON object instead of text");
  verb.on_run([is_json] {
    const Json json = doctor_json();
    write_out(*is_json ? json_text(json) : doctor_text(json));
  });
}

}  // namespace tessera::apps
