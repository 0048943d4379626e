// Which packing of a weight the best kernel takes.
// SPDX-License-Identifier: MIT
#include "c_api/call.h"
#include "c_api/gemm_args.h"

using namespace tessera;
using namespace tessera::c_api;

TesseraStatus tessera_preferred_packing(const TesseraGemmArgs* args, int32_t* packing,
                                        const TesseraContext* ctx) {
  return guarded([&] {
    if (packing == nullptr) fail("preferred_packing: packing is NULL");
    const GemmArgs read = read_gemm_args(args);
    *packing = static_cast<int32_t>(preferred_packing(read, to_call_context(ctx).ctx));
  });
}
