// What stops a launch: the error that a device would report, with the place and the values.
// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

namespace tessera::emulator {

enum class FaultKind {
  illegal_address,
  misaligned_address,
  illegal_instruction,  // one that the emulator does not know
  launch_failure,       // a trap, or a barrier used against its rules
  timeout,              // nothing can go on, or the launch takes too long
};

class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

}  // namespace tessera::emulator
