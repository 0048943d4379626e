// Hashes of what every row computes, to show that a change of the code left every bit as it was.
// SPDX-License-Identifier: MIT
#include <cinttypes>
#include <cstdio>
#include <string>

#include "bench/bench.h"
#include "bench/instance.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr int64_t kMostBytes = int64_t{4} << 20;
constexpr uint64_t kSeed = 20261116;

// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const TensorView& storage) {
    const auto* bytes = static_cast<const unsigned char*>(storage.data);
    const int64_t count = storage_bytes(storage.dtype, storage.num_elements());
    for (int64_t i = 0; i < count; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001b3;
  }

  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016" PRIx64, value_);
    return digits;
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

std::string hash_of(const Problem& problem, Device device, std::string_view row) {
  Instance instance(problem, device);
  instance.reset();
  instance.run(0, Context{.row = row});
  synchronize(device);
  Hash hash;
  for (size_t i = 0; i < problem.operands.size(); ++i) {
    const Role role = problem.operands[i].role;
    if (role == Role::output || role == Role::in_out) hash.add(instance.download(i).view());
  }
  return hash.text();
}

// The small shapes of the tests, then the workloads' shapes that are small enough.
std::vector<Shape> shapes_of(const ProblemMaker& maker) {
  std::vector<Shape> shapes = maker.test_shapes;
  for (const Workload& workload : maker.workloads) {
    shapes.insert(shapes.end(), workload.shapes.begin(), workload.shapes.end());
  }
  return shapes;
}

}  // namespace

int print_hashes(const BenchOptions& options, std::ostream& out) {
  const Device device = bench_device(options.use_cpu);
  int num_failed = 0;
  for (const ops::RowInfo& row : device.is_cpu() ? cpu_rows() : ops::all_rows()) {
    if (!options.family.empty() && row.family != options.family) continue;
    if (!options.row.empty() && row.name != options.row) continue;
    const bool runs_here =
        device.is_cpu() || runs_on(row.library, device_info(device).compute_capability);
    const ProblemMaker* maker = find_maker(row.op);
    if (!runs_here || maker == nullptr) continue;
    const std::string_view forced = device.is_cpu() ? std::string_view{} : row.name;
    for (const Shape& shape : shapes_of(*maker)) {
      if (!maker->fits(row.key, shape)) continue;
      try {
        const Problem sizes = maker->make(row.key, shape, Fill::none, 0);
        if (sizes.storage_bytes > kMostBytes) continue;
        if (!device.is_cpu() && !is_taken(sizes, device, Context{.row = row.name})) continue;
        const Problem problem = maker->make(row.key, shape, Fill::normal, kSeed);
        out << row.name << "  " << to_string(shape) << "  " << hash_of(problem, device, forced)
            << "\n";
      } catch (const Error& error) {
        ++num_failed;
        out << row.name << "  " << to_string(shape) << "  failed: " << error.what() << "\n";
      }
    }
  }
  return num_failed;
}

}  // namespace tessera::bench
