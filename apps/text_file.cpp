// Reads files, and unpacks them through a pipe.
// SPDX-License-Identifier: MIT
#include "apps/text_file.h"

#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kUnpackers = {
    {{".bz2", "bzip2"}, {".xz", "xz"}, {".gz", "gzip"}}};

// Quoted as one word for a shell.
std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char letter : text)
    word += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return word + "'";
}

std::string read_all(std::FILE* file) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), count);
  }
  return text;
}

std::string unpack(const std::filesystem::path& path, std::string_view tool) {
  // The tool's own messages are dropped: the error below is the one line to read.
  const std::string command = concat(tool, " -dc -- ", shell_word(path.string()), " 2>/dev/null");
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr)
    throw Error(concat(shown_path(path.native()), ": ", tool, " could not be started"));
  std::string text = read_all(pipe);
  const int status = pclose(pipe);
  if (status == 0) return text;
  const bool is_missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
  throw Error(concat(shown_path(path.native()), ": ", tool,
                     is_missing ? " is not installed; install it, or unpack the file first"
                                : " could not unpack it"));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(concat(shown_path(path.native()), " is a folder; a file is needed"));
  }
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw Error(concat(shown_path(path.native()), ": ", std::strerror(errno)));
  for (const auto& [suffix, tool] : kUnpackers) {
    if (path.extension() != suffix) continue;
    std::fclose(file);
    return unpack(path, tool);
  }
  std::string text = read_all(file);
  const bool is_bad = std::ferror(file) != 0;
  std::fclose(file);
  if (is_bad) throw Error(concat(shown_path(path.native()), " could not be read to its end"));
  return text;
}

std::string read_input(size_t most) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer.data(), count);
    if (text.size() > most) {
      throw Error(concat("standard input has more than ", most,
                         " bytes, which no context has room for; give a shorter prompt"));
    }
  }
  if (std::ferror(stdin) != 0) {
    throw Error(concat("standard input could not be read: ", std::strerror(errno),
                       "; give a prompt after the model, or pipe one in"));
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace tessera::apps
