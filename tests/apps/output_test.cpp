// Tests of formatted figures, the progress bar, and reading of compressed files.
// SPDX-License-Identifier: MIT
#include "apps/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/text_file.h"
#include "tests/core/message_of.h"

namespace tessera::apps {
namespace {

using testing::message_of;

TEST(Figures, AreShownForPeople) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(999), "999 B");
  EXPECT_EQ(show_bytes(25'203'456), "25.2 MB");
  EXPECT_EQ(show_bytes(999'999), "1.0 MB");
  EXPECT_EQ(show_bytes(141'000'000'000), "141 GB");
  EXPECT_EQ(show_count(7), "7");
  EXPECT_EQ(show_count(123'456), "123,456");
  EXPECT_EQ(show_count(1'234'567), "1,234,567");
  EXPECT_EQ(show_count(-1'000), "-1,000");
  EXPECT_EQ(show_rate(12.34), "12.3 tok/s");
  EXPECT_EQ(show_rate(5012.4), "5,012 tok/s");
  EXPECT_EQ(rounded(1.23456), 1.235);
}

TEST(ProgressLine, ShowsTheShareAndTheTimeLeft) {
  EXPECT_EQ(progress_line("loading", 1, 2, 30.0, "x"),
            "loading [############------------] 50 %  0:30 left  x");
  EXPECT_EQ(progress_line("loading", 0, 0, 0.0, ""), "loading [------------------------] 0 %");
  EXPECT_EQ(progress_line("loading", 5, 2, 9.0, ""), "loading [########################] 100 %");
  EXPECT_NE(progress_line("x", 1, 4, 45.0, "").find("2:15 left"), std::string::npos);
}

TEST(ProgressLine, ShowsBytesAndTheirRate) {
  EXPECT_EQ(transfer_note(3'200'000'000, 16'060'000'000, 0.16), "3.2 of 16.1 GB, 20.0 GB/s");
  EXPECT_EQ(transfer_note(0, 16'060'000'000, 0.5), "0.0 of 16.1 GB");
}

class TextFile : public ::testing::Test {
 protected:
  // The quote in the name must not reach a shell.
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("tessera it's " + std::to_string(getpid()));
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const char* name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
};

TEST_F(TextFile, IsReadWhole) {
  const std::string text("one\ntwo\0three", 13);
  EXPECT_EQ(read_text_file(write("a.txt", text)), text);
}

TEST_F(TextFile, IsUnpackedByItsName) {
  write("a.txt", "packed words\n");
  const std::string command = "cd \"" + folder_.string() + "\" && gzip -k a.txt";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "no gzip on this machine";
  EXPECT_EQ(read_text_file(folder_ / "a.txt.gz"), "packed words\n");
}

TEST_F(TextFile, ThatIsNotThereIsRefusedByName) {
  EXPECT_NE(message_of([&] { read_text_file(folder_ / "b.txt"); }).find("b.txt: No such file"),
            std::string::npos);
  EXPECT_NE(message_of([&] { read_text_file(folder_); }).find("is a folder"), std::string::npos);
}

TEST_F(TextFile, ThatIsNotPackedIsRefused) {
  const std::filesystem::path file = write("a.gz", "plain");
  EXPECT_NE(message_of([&] { read_text_file(file); }).find("could not unpack"), std::string::npos);
}

}  // namespace
}  // namespace tessera::apps
