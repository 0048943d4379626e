// Tests of counts with units, and of the environment variables of flags.
// SPDX-License-Identifier: MIT
#include "apps/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/model_options.h"
#include "tests/apps/idle_command_line.h"
#include "tests/apps/scoped_env.h"

namespace tessera::apps {
namespace {

TEST(ParseQuantity, TakesPlainNumbersAndPowersOf1024) {
  EXPECT_EQ(parse_quantity("0"), 0);
  EXPECT_EQ(parse_quantity("512"), 512);
  EXPECT_EQ(parse_quantity("32K"), 32768);
  EXPECT_EQ(parse_quantity("32k"), 32768);
  EXPECT_EQ(parse_quantity("512M"), int64_t{512} << 20);
  EXPECT_EQ(parse_quantity("2G"), int64_t{2} << 30);
  EXPECT_EQ(parse_quantity("1.5G"), int64_t{3} << 29);
  EXPECT_EQ(parse_quantity("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(parse_quantity("2GB"), int64_t{2} << 30);
  EXPECT_EQ(parse_quantity("1T"), int64_t{1} << 40);
}

TEST(ParseQuantity, RefusesWhatIsNoCount) {
  for (const char* text : {"", "K", "-1", "1.5", "2X", "2GG", "12 K", "1e3", "nan", "inf", "iB",
                           "3iB", "99999999T", "0x10"}) {
    EXPECT_EQ(parse_quantity(text), std::nullopt) << text;
  }
}

TEST(ParseQuantity, IsExactUpToTheLargest) {
  EXPECT_EQ(parse_quantity("9007199254740993"), 9007199254740993);  // 2^53 + 1: not a double
  EXPECT_EQ(parse_quantity("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_quantity("8388607T"), int64_t{8388607} << 40);
  EXPECT_EQ(parse_quantity("0.0009765625M"), 1024);
  for (const char* text : {"9223372036854775808", "18446744073709551617", "8388608T",
                           "99999999999999999999999999999999999999999999", "1.0001", "1..5G"}) {
    EXPECT_EQ(parse_quantity(text), std::nullopt) << text;
  }
}

TEST(Numbers, AreTakenWholeOrRefused) {
  EXPECT_EQ(number_problem<int>("-7"), "");
  EXPECT_EQ(number_problem<int64_t>("9223372036854775807"), "");
  EXPECT_EQ(number_problem<float>("0.5"), "");
  EXPECT_EQ(number_problem<float>("1e-3"), "");
  EXPECT_EQ(number_problem<float>("nan"), "");  // the engine checks ranges
  EXPECT_EQ(number_problem<float>(""), "'' is not a number");
  EXPECT_EQ(number_problem<float>(" 1"), "' 1' is not a number");
  EXPECT_EQ(number_problem<float>("1,5"), "'1,5' is not a number");
  EXPECT_EQ(number_problem<int>(""), "'' is not a whole number");
  EXPECT_EQ(number_problem<int>("1.5"), "'1.5' is not a whole number");
  EXPECT_EQ(number_problem<int>("4294967297"),
            "'4294967297' is too large or too small; give a whole number from -2147483648 to "
            "2147483647");
  EXPECT_EQ(number_problem<int64_t>("9223372036854775808").substr(0, 36),
            "'9223372036854775808' is too large o");
}

// The table must not name flags that no verb has.
TEST(FieldFlags, AreFlagsOfSomeVerb) {
  IdleCommandLine line;
  for (const auto& [field, flag] : field_flags()) {
    const std::string name(flag.substr(0, flag.find(' ')));
    EXPECT_TRUE(std::ranges::any_of(
        line.verbs,
        [&](const CLI::App* verb) { return verb->get_option_no_throw(name) != nullptr; }))
        << field << " is said to be " << flag;
  }
  EXPECT_EQ(flag_names()("max_new_tokens"), "--max-tokens");
  EXPECT_EQ(flag_names()("page_size"), "page_size");
}

std::string arguments_of(const CLI::App& verb) {
  return full_name(verb).substr(std::string("tessera ").size());
}

// A valid value for the flag.
std::string value_for(const CLI::Option& flag) {
  const std::string type = flag.get_type_name();
  if (flag.get_items_expected_max() == 0) return "true";
  if (type.find('|') != std::string::npos) return type.substr(0, type.find('|'));
  return "1";
}

TEST(EveryFlag, HasAnEnvironmentVariableOfItsOwn) {
  IdleCommandLine line;
  int num_flags = 0;
  for (CLI::App* verb : line.verbs) {
    std::set<std::string> names;
    for (const CLI::Option* flag : verb->get_options()) {
      if (flag->get_positional() || flag == verb->get_help_ptr() ||
          flag == verb->get_help_all_ptr()) {
        continue;
      }
      const std::string name = env_name(*verb, *flag);
      EXPECT_TRUE(name.starts_with("TESSERA_")) << full_name(*verb) << " " << flag->get_name();
      EXPECT_TRUE(names.insert(name).second) << name << " stands for two flags";
      ++num_flags;
    }
  }
  EXPECT_GT(num_flags, 60);
}

TEST(EveryFlag, IsReadFromItsEnvironmentVariable) {
  IdleCommandLine walked;
  for (size_t v = 0; v < walked.verbs.size(); ++v) {
    const size_t num_options = walked.verbs[v]->get_options().size();
    for (size_t i = 0; i < num_options; ++i) {
      IdleCommandLine line;
      CLI::App* verb = line.verbs[v];
      CLI::Option* flag = verb->get_options()[i];
      const std::string name = env_name(*verb, *flag);
      if (name.empty()) continue;
      const ScopedEnv set(name, value_for(*flag));
      line.parse(arguments_of(*verb));
      EXPECT_EQ(flag->count(), 1u) << name;
    }
  }
}

TEST(EveryFlag, HasADescription) {
  IdleCommandLine line;
  for (CLI::App* verb : line.verbs) {
    for (const CLI::Option* flag : verb->get_options()) {
      EXPECT_FALSE(flag->get_description().empty()) << full_name(*verb) << " " << flag->get_name();
    }
  }
}

TEST(EnvName, NamesTheVerbUnlessTheFlagIsShared) {
  IdleCommandLine line;
  const CLI::App& run = *line.app->get_subcommand("run");
  const CLI::App& e2e = *line.app->get_subcommand("bench")->get_subcommand("e2e");
  EXPECT_EQ(env_name(run, *run.get_option("--top-p")), "TESSERA_RUN_TOP_P");
  EXPECT_EQ(env_name(run, *run.get_option("--dtype")), "TESSERA_DTYPE");
  EXPECT_EQ(env_name(e2e, *e2e.get_option("--batch")), "TESSERA_BENCH_E2E_BATCH");
  EXPECT_EQ(env_name(e2e, *e2e.get_option("--kv-bytes")), "TESSERA_KV_BYTES");
  EXPECT_EQ(env_name(e2e, *e2e.get_option("--step-timeout")), "TESSERA_STEP_TIMEOUT");
}

TEST(Environment, GivesWayToTheCommandLine) {
  const ScopedEnv set("TESSERA_RUN_TOP_K", "7");
  IdleCommandLine line;
  line.parse("run --top-k 9");
  EXPECT_EQ(line.app->get_subcommand("run")->get_option("--top-k")->as<int>(), 9);
}

TEST(Environment, OfOneVerbDoesNotStopAnother) {
  const ScopedEnv set("TESSERA_RUN_TOP_K", "not a number");
  IdleCommandLine line;
  line.parse("doctor");
  IdleCommandLine again;
  EXPECT_THROW(again.parse("run"), CLI::ParseError);
}

TEST(Quantities, MayBeWrittenWithUnits) {
  IdleCommandLine line;
  line.parse("run --kv-bytes 512M --context 32K");
  const CLI::App* run = line.app->get_subcommand("run");
  EXPECT_EQ(run->get_option("--kv-bytes")->as<int64_t>(), int64_t{512} << 20);
  EXPECT_EQ(run->get_option("--context")->as<int64_t>(), 32768);
}

}  // namespace
}  // namespace tessera::apps
