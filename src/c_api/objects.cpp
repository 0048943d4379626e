// Finds an operation on objects by name, and checks how the objects are to be read.
// SPDX-License-Identifier: MIT
#include "c_api/objects.h"

#include <utility>

namespace tessera::c_api {

void check_reader(const TesseraObjects* how, const void* sequence) {
  check_struct_size(how, "on_objects: how", "TesseraObjects");
  if (sequence == nullptr) fail("on_objects: sequence is NULL");
  const std::pair<const char*, bool> functions[] = {
      {"size", how->size != nullptr},
      {"item", how->item != nullptr},
      {"clear_error", how->clear_error != nullptr},
      {"unlock", how->unlock != nullptr},
      {"lock", how->lock != nullptr},
      {"tensor_from_object and capsule_pointer",
       how->tensor_from_object != nullptr || how->capsule_pointer != nullptr}};
  for (const auto& [name, is_there] : functions) {
    if (!is_there) fail(concat("TesseraObjects.", name, " is NULL; a reader needs it"));
  }
}

}  // namespace tessera::c_api

TesseraFunction tessera_on_objects(const char* op) {
  using namespace tessera::c_api;
  if (op == nullptr) return nullptr;
  for (const auto entries : {ops_on_objects(), attention_on_objects()}) {
    for (const ObjectEntry& entry : entries) {
      if (entry.op == op) return entry.function;
    }
  }
  return nullptr;
}
