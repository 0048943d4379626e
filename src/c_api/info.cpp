// Versions, devices and rows through the C ABI.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "c_api/call.h"
#include "core/build_info.h"
#include "core/text.h"
#include "ops/registry.h"
#include "tessera/core/device.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

// A row with strings that end in NUL and live as long as the library, as C wants them.
struct CRow {
  std::string family;
  std::string op;
  std::string name;
  TesseraRowInfo info;
};

std::vector<CRow> make_rows() {
  std::vector<CRow> all;
  for (const ops::RowInfo& row : ops::all_rows()) {
    TesseraRowInfo info{};
    info.struct_size = sizeof info;
    info.library = row.library == Library::sm90 ? "sm90" : "portable";
    info.in = to_c(row.key.in);
    info.out = to_c(row.key.out);
    info.is_batch_invariant = row.is_batch_invariant ? 1 : 0;
    all.push_back({std::string(row.family), std::string(row.op), row.name, info});
  }
  for (CRow& row : all) {
    row.info.family = row.family.c_str();
    row.info.op = row.op.c_str();
    row.info.name = row.name.c_str();
  }
  return all;
}

const std::vector<CRow>& rows() {
  static const std::vector<CRow> all = make_rows();
  return all;
}

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

int tessera_abi_version(void) { return TESSERA_ABI_VERSION; }

const char* tessera_version(void) { return kVersion; }

const char* tessera_commit(void) { return kCommit; }

const char* tessera_cuda_version(void) {
  const char* text = "";
  guarded([&] {
    static const std::string version = cuda_runtime_version();
    text = version.c_str();
  });
  return text;
}

int tessera_num_cuda_devices(void) {
  int count = 0;
  const TesseraStatus status = guarded([&] { count = num_cuda_devices(); });
  return status == TESSERA_OK ? count : 0;
}

TesseraStatus tessera_device_info(int index, TesseraDeviceInfo* info) {
  return guarded([&] {
    check_struct_size(info, "device_info: info", "TesseraDeviceInfo");
    const int count = num_cuda_devices();
    if (index < 0 || index >= count) {
      fail(concat("device_info: there is no CUDA device ", index, "; this machine has ", count));
    }
    const DeviceInfo& found = device_info(cuda_device(index));
    const size_t length = std::min(found.name.size(), sizeof info->name - 1);
    std::memcpy(info->name, found.name.data(), length);
    info->name[length] = '\0';
    info->compute_capability = found.compute_capability;
    info->num_sms = found.num_sms;
    info->memory_bytes = found.memory_bytes;
    info->l2_bytes = found.l2_bytes;
    info->shared_bytes_per_block = found.shared_bytes_per_block;
    info->sm_clock_khz = found.sm_clock_khz;
  });
}

TesseraStatus tessera_synchronize(int index, void* stream) {
  return guarded([&] { synchronize(cuda_device(index), static_cast<Stream>(stream)); });
}

int64_t tessera_num_rows(void) {
  int64_t count = 0;
  const TesseraStatus status = guarded([&] { count = static_cast<int64_t>(rows().size()); });
  return status == TESSERA_OK ? count : -1;
}

TesseraStatus tessera_row_info(int64_t index, TesseraRowInfo* info) {
  return guarded([&] {
    check_struct_size(info, "row_info: info", "TesseraRowInfo");
    const int64_t count = static_cast<int64_t>(rows().size());
    if (index < 0 || index >= count) {
      fail(concat("row_info: there is no row ", index, "; this library has ", count));
    }
    const uint64_t struct_size = info->struct_size;
    *info = rows()[static_cast<size_t>(index)].info;
    info->struct_size = struct_size;
  });
}
