// The table of rotary angles through the C ABI.
// SPDX-License-Identifier: MIT
#include "c_api/call.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/rope.h"

namespace tessera::c_api {
namespace {

RopeScaling to_scaling(const TesseraRopeScaling& c) {
  RopeScaling scaling{.kind = to_enum(c.kind, RopeScalingKind::yarn, "make_rope_table: kind"),
                      .factor = c.factor,
                      .low_freq_factor = c.low_freq_factor,
                      .high_freq_factor = c.high_freq_factor,
                      .original_max_positions = c.original_max_positions,
                      .beta_fast = c.beta_fast,
                      .beta_slow = c.beta_slow,
                      .attention_factor = {}};
  if (c.attention_factor != 0) scaling.attention_factor = c.attention_factor;
  return scaling;
}

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_make_rope_table(const DLTensor* table, double theta,
                                      const TesseraRopeScaling* scaling) {
  return guarded([&] {
    TensorView out;
    read(out, table, {"make_rope_table", "table"});
    if (out.rank != 2 || out.dtype != DType::f32 || !out.device.is_cpu()) {
      fail(concat("make_rope_table: table is ", to_string(out),
                  "; want f32[num_positions, rotary_dim] on cpu"));
    }
    RopeScaling how;
    if (scaling != nullptr) {
      check_struct_size(scaling, "make_rope_table: scaling", "TesseraRopeScaling");
      how = to_scaling(*scaling);
    }
    copy({.x = make_rope_table(out.size(0), out.size(1), theta, how), .out = out}, {});
  });
}
