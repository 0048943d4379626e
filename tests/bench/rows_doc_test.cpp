// The tables of rows in docs/kernels are the tables in the code.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "bench/bench.h"
#include "ops/registry.h"

namespace tessera::bench {
namespace {

constexpr std::string_view kBegin = "<!-- rows:begin -->\n";
constexpr std::string_view kEnd = "<!-- rows:end -->";

TEST(RowTableInDocs, IsWhatBenchListPrints) {
  if (ops::all_rows().empty()) GTEST_SKIP() << "this build has no CUDA rows to hold docs against";
  std::set<std::string> families;
  for (const ops::RowInfo& row : ops::all_rows()) families.emplace(row.family);
  for (const std::string& family : families) {
    const std::string path = TESSERA_SOURCE_DIR "/docs/kernels/" + family + ".md";
    std::ifstream file(path);
    ASSERT_TRUE(file) << "no page for the family: write " << path;
    std::stringstream content;
    content << file.rdbuf();
    const std::string text = content.str();
    const size_t begin = text.find(kBegin), end = text.find(kEnd);
    ASSERT_NE(begin, std::string::npos) << path << " lacks the line " << kBegin;
    ASSERT_NE(end, std::string::npos) << path << " lacks the line " << kEnd;
    const size_t first = begin + kBegin.size();
    EXPECT_EQ(text.substr(first, end - first), list_rows(family, true))
        << "run: tools/render_results.py --rows <build>/apps/tessera";
  }
}

}  // namespace
}  // namespace tessera::bench
