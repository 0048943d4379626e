// Finds an operation on objects by name.
// SPDX-License-Identifier: MIT
#include "c_api/call.h"

TesseraFunction tessera_on_objects(const char* op) {
  using namespace tessera::c_api;
  if (op == nullptr) return nullptr;
  for (const auto entries : {ops_on_objects(), weights_on_objects(), attention_on_objects()}) {
    for (const ObjectEntry& entry : entries) {
      if (entry.op == op) return entry.function;
    }
  }
  return nullptr;
}
