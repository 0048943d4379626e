/* Compiled as C99: the header is plain C, and an operation runs from it. */
/* SPDX-License-Identifier: MIT */
#include "plain_c.h"

#include "tessera/c.h"
#include "tessera/c_engine.h"

static DLTensor floats(float* data, int ndim, int64_t* shape) {
  DLTensor tensor;
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = ndim;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  tensor.strides = 0;
  tensor.byte_offset = 0;
  return tensor;
}

int silu_of_zero_from_c(float* result) {
  float x = 0.0f;
  int64_t shape[1] = {1};
  DLTensor tensor = floats(&x, 1, shape);
  TesseraContext ctx = {sizeof(TesseraContext), 0, 0, 0, 0};
  *result = 1.0f;
  if (tessera_activation(&tensor, 0, &tensor, TESSERA_SILU, &ctx) != TESSERA_OK) return 1;
  *result = x;
  return 0;
}

int attention_from_c(float* result) {
  float zero[2] = {0.0f, 0.0f}, values[2] = {1.0f, 4.0f}, out[1] = {0.0f};
  int64_t query_shape[4] = {1, 1, 1, 1}, key_shape[4] = {1, 2, 1, 1};
  DLTensor q = floats(zero, 4, query_shape), k = floats(zero, 4, key_shape);
  DLTensor v = floats(values, 4, key_shape), o = floats(out, 4, query_shape);
  TesseraAttentionArgs args = {sizeof(TesseraAttentionArgs)};
  args.q = &q;
  args.k = &k;
  args.v = &v;
  args.out = &o;
  args.bounds = TESSERA_ATTENTION_RIGHT; /* causal: right is 0 */
  if (tessera_attention_prefill(&args, 0) != TESSERA_OK) return 1;
  *result = out[0];
  return 0;
}

int default_tokens_from_c(void) {
  TesseraEngine* engine = 0;
  TesseraRequest request;
  tessera_request_init(&request);
  if (tessera_engine_create("", 0, &engine) == TESSERA_OK || engine != 0) return -1;
  return (int)request.max_new_tokens;
}
