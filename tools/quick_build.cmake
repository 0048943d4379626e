# TESSERA_QUICK: what makes the first build quick. Included once all targets exist.
#
# The headers that most files include are compiled once.
# Precompiled headers hide missing includes and do not suit ccache; other builds do without.
# SPDX-License-Identifier: MIT

# An answer's time is that of the operations on the CPU or the GPU; the rest is a small share of it.
foreach(target tessera_apps tessera_bench tessera_text tessera_grammar tessera_cache tessera_dist
               tessera_model tessera_quant tessera_quant_model tessera_engine tessera_server)
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
    vector
    nlohmann/json.hpp)
list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
target_precompile_headers(tessera_core PRIVATE ${headers})
foreach(target tessera_text tessera_grammar tessera_cpu tessera_ops tessera_cache tessera_dist
               tessera_model tessera_quant tessera_quant_model tessera_engine tessera_server
               tessera_bench tessera_apps)
  if(TARGET ${target})
    target_precompile_headers(${target} REUSE_FROM tessera_core)
  endif()
endforeach()
