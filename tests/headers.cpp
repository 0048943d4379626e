// Nothing but the headers that all tests share (compile_quickly.cmake).
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
