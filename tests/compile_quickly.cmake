# What makes the tests quick to compile. Included once all of their targets exist.
#
# Half of a test file's time is spent on the headers of GoogleTest and the standard library, so they
# are compiled once. ccache takes precompiled headers with the settings of the main CMakeLists.txt.
# They hide missing includes: the asan and tsan presets do without. Clang does not take headers that
# were compiled with other macros than the test.
#
# A test spends its time in the library, which is optimised as ever; -O1 is enough for the rest.
# At that level GCC's warnings about what flows where see overruns in std::string that are none.
# SPDX-License-Identifier: MIT

set(use_pch OFF)
if(TESSERA_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(use_pch ON)
endif()
set(level $<$<NOT:$<CONFIG:Debug>>:-O1>)
if(use_pch)
  add_library(tessera_test_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cpp)
  target_link_libraries(tessera_test_headers PRIVATE tessera_options GTest::gtest)
  # GCC wants the same code model as the tests have, which are executables.
  set_target_properties(tessera_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(tessera_test_headers PRIVATE -fPIE ${level})
  target_precompile_headers(
    tessera_test_headers
    PRIVATE
    <gtest/gtest.h>
    <algorithm>
    <array>
    <cmath>
    <cstdint>
    <filesystem>
    <fstream>
    <functional>
    <map>
    <memory>
    <numeric>
    <optional>
    <random>
    <span>
    <sstream>
    <string>
    <string_view>
    <tuple>
    <utility>
    <vector>)
endif()

set(quiet)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(quiet -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow)
endif()
function(tessera_compile_quickly folder)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    tessera_compile_quickly(${below})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(NOT type STREQUAL EXECUTABLE OR NOT sources MATCHES "_test\\.cpp")
      continue()
    endif()
    target_compile_options(${target}
                           PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${level};${quiet}>")
    if(use_pch)
      target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
    endif()
  endforeach()
endfunction()
tessera_compile_quickly(${CMAKE_CURRENT_SOURCE_DIR})
