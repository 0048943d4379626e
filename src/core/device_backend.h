// The GPU half of device.h: device_cuda.cpp implements it, device_none.cpp refuses every call.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/device.h"

// At least one device of each call is a GPU; device.cpp handles the CPU itself.
namespace tessera::backend {

void* allocate(Device device, size_t num_bytes);
void deallocate(Device device, void* data) noexcept;
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t num_bytes,
                Stream stream);
void fill_bytes(void* data, Device device, uint8_t value, size_t num_bytes, Stream stream);
void synchronize(Device device, Stream stream);
Stream create_stream(Device device);
void destroy_stream(Device device, Stream stream) noexcept;
void* allocate_pinned(size_t num_bytes);
void deallocate_pinned(void* data) noexcept;

// For graph.h.
Stream create_stream(Device device);
void destroy_stream(Device device, Stream stream) noexcept;
void* create_event(Device device);
void destroy_event(Device device, void* event) noexcept;
void record_event(Device device, void* event, Stream stream);
void wait_for_event(Device device, void* event);
void begin_capture(Device device, Stream stream);
void drop_capture(Device device, Stream stream) noexcept;
void* end_capture(Device device, Stream stream);  // an executable graph
void launch_graph(Device device, void* graph, Stream stream);
void destroy_graph(Device device, void* graph) noexcept;

}  // namespace tessera::backend
