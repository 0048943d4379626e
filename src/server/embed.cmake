# Writes a C++ file that holds the contents of files: OUT, and for each of NAMES a file IN_<name>.
# SPDX-License-Identifier: MIT
string(REPLACE "," ";" NAMES ${NAMES})
set(text "#include \"server/assets.h\"\n\nnamespace tessera::server {\n")
foreach(name ${NAMES})
  file(READ ${IN_${name}} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(APPEND text "static constexpr unsigned char k_${name}[] = {${bytes}0};\n"
         "std::string_view ${name}() {\n"
         "  return {reinterpret_cast<const char*>(k_${name}), sizeof(k_${name}) - 1};\n}\n")
endforeach()
string(APPEND text "}  // namespace tessera::server\n")
file(WRITE ${OUT} "${text}")
