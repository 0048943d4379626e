/* Compiled as C99: the header is plain C, and an operation runs from it. */
/* SPDX-License-Identifier: MIT */
#include "plain_c.h"

#include "tessera/c.h"

int silu_of_zero_from_c(float* result) {
  float x = 0.0f;
  int64_t shape[1] = {1};
  DLTensor tensor;
  TesseraContext ctx = {sizeof(TesseraContext), 0, 0, 0, 0};
  tensor.data = &x;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = 1;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = 0;
  tensor.byte_offset = 0;
  *result = 1.0f;
  if (tessera_activation(&tensor, 0, &tensor, TESSERA_SILU, &ctx) != TESSERA_OK) return 1;
  *result = x;
  return 0;
}
