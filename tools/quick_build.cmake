# TESSERA_QUICK: what makes the first build quick. Included once all targets exist.
#
# Half of a host file's time is spent on headers of the standard library, so they are compiled once.
# Precompiled headers hide missing includes and do not suit ccache; other builds do without.
# SPDX-License-Identifier: MIT

# The command line, benches, text and loading of models are a small share of the time of an answer.
foreach(target tessera_apps tessera_bench tessera_text tessera_model tessera_server)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endforeach()

set(headers
    algorithm
    array
    charconv
    chrono
    cmath
    cstdint
    cstdio
    cstring
    filesystem
    functional
    map
    memory
    optional
    random
    span
    sstream
    string
    string_view
    unordered_map
    utility
    variant
    vector)
list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
target_precompile_headers(tessera_core PRIVATE ${headers})
foreach(target tessera_text tessera_cpu tessera_ops tessera_cache tessera_dist tessera_model
               tessera_sampling tessera_engine tessera_server tessera_bench tessera_apps)
  if(TARGET ${target})
    target_precompile_headers(${target} REUSE_FROM tessera_core)
  endif()
endforeach()
