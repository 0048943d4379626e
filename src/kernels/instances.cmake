# Instance files: the .cu that compiles a template for given types, written at configure time from
# the list beside the template, so that no such file is kept by hand.
# SPDX-License-Identifier: MIT

# tessera_instances(<portable|sm90> <name>
#                   INCLUDE <header>...
#                   INSTANTIATE "<explicit instantiation, without the word template>"...)
# Adds <build folder>/instances/<library>/<name>.cu to tessera_kernels_<library>. Declarations are
# read inside namespace tessera::kernels; one in a namespace below it names it:
#   INSTANTIATE "void decode::launch<Bf16>(const DecodeAttentionArgs&, const Context&)"
# If the build leaves out the library (TESSERA_SM90=OFF), nothing is added.
# What goes into one file is compiled in one go: more files if it takes longer than 60 s
# (tools/build_times.py shows the times).
function(tessera_instances library name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "INCLUDE;INSTANTIATE")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_INCLUDE OR NOT arg_INSTANTIATE)
    message(FATAL_ERROR "tessera_instances(${library} ${name}): needs INCLUDE and INSTANTIATE; "
                        "left over: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT TARGET tessera_kernels_${library})
    return()
  endif()
  list(TRANSFORM arg_INCLUDE REPLACE "(.+)" "#include \"\\1\"\n")
  list(TRANSFORM arg_INSTANTIATE REPLACE "(.+)" "template \\1@end@\n")
  string(JOIN "" includes ${arg_INCLUDE})
  string(JOIN "" instantiations ${arg_INSTANTIATE})
  set(end ";")
  set(file ${CMAKE_CURRENT_BINARY_DIR}/instances/${library}/${name}.cu)
  # Writes only what changed, so that configuring again compiles nothing again.
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "// Made by src/kernels/instances.cmake.
// SPDX-License-Identifier: MIT
${includes}
namespace tessera::kernels {

${instantiations}
}  // namespace tessera::kernels
")
  target_sources(tessera_kernels_${library} PRIVATE ${file})
endfunction()
