// Nothing but the headers that all tests share (shared_headers.cmake).
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
