# Writes build_info.cpp with the commit of the source tree; the file is touched only where its text
# changes, so that a build that changes nothing compiles nothing.
# usage: cmake -DSOURCE=root -DOUT=file -DVERSION=0.1.0 -P write_build_info.cmake
set(version "${VERSION}")
set(commit "unknown")

# git's answer counts only where the tree is its own repository: not for an unpacked archive that
# lies inside another one.
find_program(GIT git)
if(GIT)
  execute_process(
    COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix --short=12 HEAD
    OUTPUT_VARIABLE answer
    ERROR_QUIET
    RESULT_VARIABLE status)
  # The prefix of the root is an empty line, and the commit follows.
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

# `git archive` puts the commit into this file. A copy that neither has may be told by the
# environment.
if(commit STREQUAL "unknown")
  file(READ ${SOURCE}/src/core/archive_commit.txt archived)
  if(archived MATCHES "^([0-9a-f]+)")
    string(SUBSTRING "${CMAKE_MATCH_1}" 0 12 commit)
  elseif(NOT "$ENV{TESSERA_COMMIT}" STREQUAL "")
    set(commit "$ENV{TESSERA_COMMIT}")
  endif()
endif()

configure_file(${SOURCE}/src/core/build_info.cpp.in ${OUT} @ONLY)
