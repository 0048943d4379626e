// Lets this thread allocate and wait while a stream is being captured.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

namespace tessera::kernels {

// During a capture CUDA refuses calls that might wait for it, on every thread, unless a thread opts
// out. It is safe here: these calls touch nothing that is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tessera::kernels
