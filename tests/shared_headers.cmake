# TESSERA_PCH: the headers that tests share, compiled once. Included once all targets exist.
#
# Half of a test file's time is spent on the headers of GoogleTest and the standard library.
# ccache takes precompiled headers with the settings of the main CMakeLists.txt. They hide missing
# includes, so a build without them must pass as well. Needs GCC: Clang does not take headers that
# were compiled with other macros than the test.
# SPDX-License-Identifier: MIT

add_library(tessera_test_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cpp)
target_link_libraries(tessera_test_headers PRIVATE tessera_options GTest::gtest)
# GCC wants the same code model as the tests have, which are executables.
set_target_properties(tessera_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(tessera_test_headers PRIVATE -fPIE)
set(headers
    gtest/gtest.h
    algorithm
    array
    cmath
    cstdint
    filesystem
    fstream
    functional
    map
    memory
    numeric
    optional
    random
    span
    sstream
    string
    string_view
    tuple
    utility
    vector)
list(TRANSFORM headers REPLACE "(.+)" "<\\1>")
target_precompile_headers(tessera_test_headers PRIVATE ${headers})

function(tessera_share_headers folder)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below ${folders})
    tessera_share_headers(${below})
  endforeach()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(type STREQUAL EXECUTABLE AND sources MATCHES "_test\\.cpp")
      target_precompile_headers(${target} REUSE_FROM tessera_test_headers)
    endif()
  endforeach()
endfunction()
tessera_share_headers(${CMAKE_CURRENT_SOURCE_DIR})
