# Writes build_info.cpp with the version and commit of the source tree. The file is only touched if
# its text changes, so that a build without changes compiles nothing.
# usage: cmake -DSOURCE=root -DOUT=file -DVERSION=0.1.0 -P write_build_info.cmake
set(version "${VERSION}")
set(commit "unknown")

# git's answer counts only if the source is the root of a repository, and not an unpacked archive
# inside another one.
find_program(GIT git)
if(GIT)
  execute_process(
    COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix --short=12 HEAD
    OUTPUT_VARIABLE answer
    ERROR_QUIET
    RESULT_VARIABLE status)
  # At the root the prefix is an empty line; the commit follows.
  if(status EQUAL 0 AND answer MATCHES "^\n([0-9a-f]+)\n$")
    set(commit "${CMAKE_MATCH_1}")
    execute_process(
      COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changed
      ERROR_QUIET
      RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT changed STREQUAL "")
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

# `git archive` writes the commit into archive_commit.txt. Other copies may set TESSERA_COMMIT.
if(commit STREQUAL "unknown")
  file(READ ${SOURCE}/src/core/archive_commit.txt archived)
  if(archived MATCHES "^([0-9a-f]+)")
    string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 commit)
  elseif(NOT "$ENV{TESSERA_COMMIT}" STREQUAL "")
    set(commit "$ENV{TESSERA_COMMIT}")
  endif()
endif()

file(CONFIGURE OUTPUT ${OUT} CONTENT [[
// Written by write_build_info.cmake.
#include "core/build_info.h"

namespace tessera {

const char* const kVersion = "@version@";
const char* const kCommit = "@commit@";

}  // namespace tessera
]] @ONLY)
