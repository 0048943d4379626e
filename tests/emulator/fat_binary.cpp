// The format is not documented; it has been the same since CUDA 5. A header of 16 bytes precedes a
// list of entries, each with a header of its own: machine code (ELF) or PTX for one architecture.
// SPDX-License-Identifier: MIT
#include "tests/emulator/fat_binary.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace tessera::emulator {
namespace {

constexpr uint16_t kPtxEntry = 1;
constexpr uint64_t kCompressed = 0x2000 | 0x8000;  // LZ4, and Zstandard since CUDA 12.8

struct Wrapper {
  int magic;
  int version;
  const char* data;
  void* unused;
};

struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;  // of all entries
};

struct Entry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;
  uint32_t options;
  uint16_t minor, major;
  uint32_t architecture;
  uint32_t name_offset, name_bytes;
  uint64_t flags;
};

}  // namespace

std::string_view find_ptx(const void* wrapper) {
  const char* data = static_cast<const Wrapper*>(wrapper)->data;
  Header header;
  std::memcpy(&header, data, sizeof header);
  const char* at = data + header.header_bytes;
  const char* const end = at + header.bytes;
  while (at < end) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.kind == kPtxEntry) {
      if ((entry.flags & kCompressed) != 0) {
        throw std::runtime_error("PTX is compressed; compile with nvcc --no-compress");
      }
      const std::string_view text(at + entry.header_bytes, entry.bytes);
      return text.substr(0, text.find('\0'));
    }
    at += entry.header_bytes + entry.bytes;
  }
  throw std::runtime_error("a fat binary holds no PTX; compile for a virtual architecture");
}

}  // namespace tessera::emulator
