// JSON by the schema of docs/results/method.md, and the table on the terminal.
// SPDX-License-Identifier: MIT
#include "bench/report.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "core/text.h"
#include "cpu/simd_dispatch.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

using Json = nlohmann::ordered_json;

// Figures are written with four significant digits: the rest is noise.
Json rounded(double value) {
  if (value == 0) return 0;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

template <class T>
Json or_null(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    return rounded(*value);
  } else {
    return *value;
  }
}

Json known_or_null(double value) { return value > 0 ? rounded(value) : Json(nullptr); }

Json shape_json(const Shape& shape) {
  Json json = Json::object();
  for (const auto& [name, value] : shape) {
    if (const auto value_name = name_of_value(name, value)) {
      json[name] = *value_name;
    } else {
      json[name] = value;
    }
  }
  return json;
}

// By name, as bench/compare.py adds its own.
Json peers_json(const std::optional<PeerTime>& peer) {
  Json json = Json::object();
  if (!peer) return json;
  json[peer->row] = {{"us", rounded(peer->us)},
                     {"p10", rounded(peer->p10)},
                     {"p90", rounded(peer->p90)},
                     {"ratio", rounded(peer->ratio)}};
  return json;
}

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

std::string cell(double value, const char* format) {
  if (std::isnan(value)) return "-";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

}  // namespace

std::string current_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string simd_name() { return std::string(cpu::name(cpu::simd_levels().back())); }

std::string report_json(const Report& report) {
  Json json;
  json["gpu"] = report.machine.gpu;
  json["driver"] = report.machine.driver;
  json["cuda"] = report.machine.cuda;
  json["commit"] = report.machine.commit;
  json["date"] = report.machine.date;
  json["clocks"] = {{"sm_mhz", or_null(report.machine.sm_clock_mhz)},
                    {"memory_mhz", or_null(report.machine.memory_clock_mhz)}};
  json["ceilings"] = {{"read_tbs", known_or_null(report.ceilings.read_tbs)},
                      {"copy_tbs", known_or_null(report.ceilings.copy_tbs)},
                      {"bf16_tflops", known_or_null(report.ceilings.bf16_tflops)}};
  json["results"] = Json::array();
  for (const Result& r : report.results) {
    json["results"].push_back({{"workload", r.workload},
                               {"row", r.row},
                               {"dtype", r.dtype},
                               {"shape", shape_json(r.shape)},
                               {"us", rounded(r.us)},
                               {"p10", rounded(r.p10)},
                               {"p90", rounded(r.p90)},
                               {"tbs", rounded(r.tbs)},
                               {"tflops", rounded(r.tflops)},
                               {"percent_of_floor", rounded(r.percent_of_floor)},
                               {"host_us", or_null(r.host_us)},
                               {"joules", or_null(r.joules)},
                               {"calls_per_second_per_watt", or_null(r.calls_per_second_per_watt)},
                               {"peers", peers_json(r.peer)}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string list_workloads(std::string_view family) {
  Json list = Json::array();
  for (const ProblemMaker& maker : problem_makers()) {
    if (!family.empty() && maker.family != family) continue;
    for (const Workload& workload : maker.workloads) {
      for (const Shape& shape : workload.shapes) {
        Json dtypes = Json::array();
        for (const RowKey key : maker.keys) {
          if (maker.fits(key, shape)) dtypes.push_back({name(key.in), name(key.out)});
        }
        list.push_back({{"op", maker.op},
                        {"workload", workload.name},
                        {"shape", shape_json(shape)},
                        {"dtypes", dtypes}});
      }
    }
  }
  return list.dump(1) + "\n";
}

std::string time_key(const std::string& row, const Shape& shape) {
  return concat(row, "|", to_string(shape));
}

std::map<std::string, double> read_times(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(concat("bench: could not read ", path));
  const Json json = Json::parse(file);
  std::map<std::string, double> times;
  for (const Json& result : json.at("results")) {
    Shape shape;
    for (const auto& [name, value] : result.at("shape").items()) {
      shape.emplace_back(name, value.is_string() ? value_of_name(name, value.get<std::string>())
                                                 : value.get<int64_t>());
    }
    times[time_key(result.at("row").get<std::string>(), shape)] = result.at("us").get<double>();
  }
  return times;
}

void print_header(const Report& report, std::ostream& out) {
  const Machine& m = report.machine;
  out << m.gpu << ", driver " << m.driver << ", CUDA " << m.cuda << ", commit " << m.commit << ", "
      << m.date << "\n"
      << "ceilings of this run: read " << cell(report.ceilings.read_tbs, "%.3f") << " TB/s, copy "
      << cell(report.ceilings.copy_tbs, "%.3f") << " TB/s, bf16 matrix "
      << (report.ceilings.bf16_tflops > 0 ? cell(report.ceilings.bf16_tflops, "%.0f TFLOPS")
                                          : "not measured")
      << "\n";
  if (!report.ceilings.note.empty()) out << report.ceilings.note << "\n";
  out << std::left << std::setw(28) << "row" << std::setw(54) << "shape" << std::right
      << std::setw(10) << "us" << std::setw(10) << "p10" << std::setw(10) << "p90" << std::setw(8)
      << "TB/s" << std::setw(8) << "TFLOPS" << std::setw(8) << "% floor" << std::setw(10)
      << "mJ/call" << std::setw(12) << "calls/s/W" << std::setw(9) << "host us" << std::setw(9)
      << "x peer" << std::setw(9) << "x base"
      << "\n";
}

void print_result(const Result& r, std::ostream& out) {
  const double millijoules = r.joules.value_or(kMissing) * 1e3;
  const double peer_ratio = r.peer ? r.peer->ratio : kMissing;
  const double ratio = r.baseline_us.value_or(kMissing) / r.us;
  out << std::left << std::setw(28) << r.row << std::setw(54) << to_string(r.shape) << std::right
      << std::setw(10) << cell(r.us, "%.2f") << std::setw(10) << cell(r.p10, "%.2f")
      << std::setw(10) << cell(r.p90, "%.2f") << std::setw(8) << cell(r.tbs, "%.3f") << std::setw(8)
      << cell(r.tflops, "%.2f") << std::setw(8) << cell(r.percent_of_floor, "%.1f") << std::setw(10)
      << cell(millijoules, "%.3f") << std::setw(12)
      << cell(r.calls_per_second_per_watt.value_or(kMissing), "%.1f") << std::setw(9)
      << cell(r.host_us.value_or(kMissing), "%.2f") << std::setw(9) << cell(peer_ratio, "%.3f")
      << std::setw(9) << cell(ratio, "%.2f") << std::endl;  // flushed, to show progress
}

}  // namespace tessera::bench
