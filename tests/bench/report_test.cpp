// The JSON that `tessera bench` writes can be read back.
// SPDX-License-Identifier: MIT
#include "bench/report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/result_file.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

Report sample_report() {
  Report report;
  report.machine = {.gpu = "A GPU",
                    .driver = "1.2",
                    .cuda = "13.0",
                    .commit = "abc",
                    .date = "now",
                    .sm_clock_mhz = 1980,
                    .memory_clock_mhz = std::nullopt};
  report.ceilings.read_tbs = 4.5;
  Result result;
  result.workload = "norm";
  result.row = "rms_norm_sm90_bf16";
  result.dtype = "bf16";
  result.shape = {{"rows", 16}, {"hidden", 4096}};
  result.us = 2.345678;
  report.results.push_back(result);
  return report;
}

TEST(Report, ReadsBackTheTimesItWrote) {
  const std::string path = ::testing::TempDir() + "tessera_report_test.json";
  const Report report = sample_report();
  ResultFile(path).write(report_json(report));
  const auto times = read_times(path);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times.at(time_key("rms_norm_sm90_bf16", report.results[0].shape)), 2.346);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  for (const char* part : {"\"gpu\": \"A GPU\"", "\"bf16_tflops\": null", "\"joules\": null",
                           "\"peers\": {}", "\"sm_mhz\": 1980", "\"memory_mhz\": null"}) {
    EXPECT_NE(text.str().find(part), std::string::npos) << part << " in\n" << text.str();
  }
}

// The layout that bench/compare.py adds to and tools/render_results.py reads.
TEST(Report, WritesAPeerByItsNameAndTheHostsCost) {
  const std::string path = ::testing::TempDir() + "tessera_report_peer_test.json";
  Report report = sample_report();
  report.results.push_back(report.results[0]);
  report.results[0].host_us = 1.23456;
  report.results[0].peer = {"rms_norm_bf16", 3.0, 2.9, 3.1, 1.27891};
  ResultFile(path).write(report_json(report));
  std::ifstream file(path);
  const auto results = nlohmann::json::parse(file).at("results");
  const auto want = nlohmann::json::parse(
      R"({"rms_norm_bf16": {"us": 3.0, "p10": 2.9, "p90": 3.1, "ratio": 1.279}})");
  EXPECT_EQ(results[0].at("peers"), want);
  EXPECT_EQ(results[0].at("host_us"), 1.235);
  EXPECT_EQ(results[1].at("peers"), nlohmann::json::object());
  EXPECT_TRUE(results[1].at("host_us").is_null());
}

TEST(Report, PrintsEveryColumnUnderItsHeading) {
  Report report = sample_report();
  report.results[0].host_us = 1.23456;
  report.results[0].peer = {"rms_norm_bf16", 3.0, 2.9, 3.1, 1.27891};
  std::ostringstream header, line;
  print_header(report, header);
  print_result(report.results[0], line);
  const std::string heading = header.str().substr(header.str().rfind("row  "));
  EXPECT_EQ(heading.size(), line.str().size());
  const auto ends_like = [&](const std::string& name, const std::string& value) {
    const size_t end = heading.find(name) + name.size();
    EXPECT_EQ(line.str().substr(end - value.size() - 1, value.size() + 1), " " + value) << name;
  };
  ends_like("host us", "1.23");
  ends_like("x peer", "1.279");
  ends_like("x base", "-");
}

TEST(Report, SaysWhichFileItCouldNotRead) { EXPECT_THROW(read_times("/no/such/file.json"), Error); }

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ResultFile, IsRefusedWhenItIsOpenedWhereItCannotBeWritten) {
  for (const char* path : {"/no/such/folder/x.json", "/tmp"}) {
    try {
      const ResultFile file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

TEST(ResultFile, KeepsWhatThereWasUntilItIsWritten) {
  const std::string path = ::testing::TempDir() + "tessera_result_file_test.json";
  std::ofstream(path) << "a longer text from before";
  { const ResultFile never_written(path); }
  EXPECT_EQ(text_of(path), "a longer text from before");
  ResultFile(path).write("new");
  EXPECT_EQ(text_of(path), "new");
  std::filesystem::remove(path);
  { const ResultFile never_written(path); }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ResultFile, IsRefusedOnAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  ResultFile file("/dev/full");
  EXPECT_THROW(file.write("text"), Error);
}

}  // namespace
}  // namespace tessera::bench
