// The thread's last error message, and which status each exception becomes.
// SPDX-License-Identifier: MIT
#include "c_api/status.h"

#include <exception>
#include <new>
#include <string>

#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

thread_local std::string last_error;
// What tessera_last_error returns: last_error, or a literal where there was no memory to store one.
thread_local const char* last_error_text = "";

TesseraStatus record(TesseraStatus status, const char* what) noexcept {
  try {
    last_error = what;
    last_error_text = last_error.c_str();
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
    return record(TESSERA_ERROR, error.what());
  } catch (const NotSupported& error) {
    return record(TESSERA_NOT_SUPPORTED, error.what());
  } catch (const std::bad_alloc&) {
    last_error_text = "out of host memory";
    return TESSERA_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return record(TESSERA_INTERNAL_ERROR, error.what());
  } catch (...) {
    return record(TESSERA_INTERNAL_ERROR, "an exception that is not a std::exception");
  }
}

}  // namespace tessera::c_api

const char* tessera_last_error(void) { return tessera::c_api::last_error_text; }
