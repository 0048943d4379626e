// This thread's last error message, and the status of each kind of exception.
// SPDX-License-Identifier: MIT
#include <exception>
#include <new>
#include <string>

#include "c_api/call.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

constexpr size_t kMaxMessageBytes = 8192;  // longer than any Error

thread_local std::string last_error;
// What tessera_last_error returns: last_error, or a literal if there was no memory to store it.
thread_local const char* last_error_text = "";
thread_local std::string last_error_where;

TesseraStatus record(TesseraStatus status, const char* what,
                     const Error* error = nullptr) noexcept {
  last_error_where.clear();
  try {
    last_error = shown(what, kMaxMessageBytes);
    last_error_text = last_error.c_str();
    if (error != nullptr) last_error_where = error->where();
  } catch (...) {
    last_error_text = "out of host memory while storing an error message";
  }
  return status;
}

}  // namespace

TesseraStatus record_current_exception() noexcept {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    return record(TESSERA_OUT_OF_MEMORY, error.what());
  } catch (const Error& error) {
    return record(TESSERA_ERROR, error.what(), &error);
  } catch (const NotSupported& error) {
    return record(TESSERA_NOT_SUPPORTED, error.what());
  } catch (const std::bad_alloc&) {
    last_error_text = "out of host memory";
    last_error_where.clear();
    return TESSERA_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return record(TESSERA_INTERNAL_ERROR, error.what());
  } catch (...) {
    return record(TESSERA_INTERNAL_ERROR, "an exception that is not a std::exception");
  }
}

}  // namespace tessera::c_api

const char* tessera_last_error(void) { return tessera::c_api::last_error_text; }
const char* tessera_last_error_where(void) { return tessera::c_api::last_error_where.c_str(); }
