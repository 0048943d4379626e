// Tests of the tasks' file formats, of contexts with examples, and of accuracy.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/eval/accuracy.h"
#include "apps/eval/tasks.h"
#include "tests/core/message_of.h"

namespace tessera::apps {
namespace {

using testing::message_of;
namespace fs = std::filesystem;

TEST(Csv, KeepsCommasQuotesAndLineEndsInsideQuotes) {
  const auto rows = parse_csv("a,\"b, c\",\"say \"\"hi\"\"\"\r\n\"two\nlines\",,x\n\nlast", "f");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"a", "b, c", "say \"hi\""}));
  EXPECT_EQ(rows[1], (std::vector<std::string>{"two\nlines", "", "x"}));
  EXPECT_EQ(rows[2], (std::vector<std::string>{"last"}));
}

TEST(Csv, KeepsAnEmptyQuotedField) {
  EXPECT_EQ(parse_csv("\"\"\n", "f"), (std::vector<std::vector<std::string>>{{""}}));
}

TEST(Csv, ThatNeverClosesAQuoteIsRefusedWithTheLine) {
  EXPECT_NE(message_of([] { parse_csv("a\nb,\"c\nd", "f.csv"); }).find("f.csv:2"),
            std::string::npos);
}

constexpr const char* kHellaSwag =
    "A man sits. he\n3\nskis.\nrips.\ncubes.\npulls.\n"
    "A lady\n0\nswings.\nlifts.\nsings.\nsits.\n";

TEST(HellaSwag, TakesSixLinesAQuestion) {
  const std::vector<Question> questions = parse_hellaswag(kHellaSwag, "f");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].query, "A man sits. he");
  EXPECT_EQ(questions[0].choices, (std::vector<std::string>{"skis.", "rips.", "cubes.", "pulls."}));
  EXPECT_EQ(questions[0].gold, 3);
  EXPECT_EQ(questions[1].gold, 0);
}

TEST(HellaSwag, OfAnotherShapeIsRefusedWithTheLine) {
  EXPECT_NE(message_of([] { parse_hellaswag("a\n0\nb\n", "f"); }).find("f has 3 lines"),
            std::string::npos);
  EXPECT_NE(message_of([] { parse_hellaswag("a\n4\nb\nc\nd\ne\n", "f"); }).find("f:2"),
            std::string::npos);
}

TEST(Arc, TakesAJsonObjectALine) {
  const std::vector<Question> questions = parse_arc(
      "{\"choices\": [\"x\", \"y\", \"z\"], \"query\": \"Question: why?\", \"gold\": 2}\n\n", "f");
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].query, "Question: why?\nAnswer:");
  EXPECT_EQ(questions[0].choices.size(), 3u);
  EXPECT_EQ(questions[0].gold, 2);
}

TEST(Arc, OfAnotherShapeIsRefusedWithTheLine) {
  const std::string good = "{\"choices\": [\"x\", \"y\"], \"query\": \"q\", \"gold\": 1}\n";
  for (const char* bad :
       {"{", "[]", "{\"query\": 1}", "{\"choices\": [\"x\", \"y\"], \"query\": \"q\", \"gold\": 2}",
        "{\"choices\": [\"x\"], \"query\": \"q\", \"gold\": 0}"}) {
    EXPECT_NE(message_of([&] { parse_arc(good + bad, "f"); }).find("f:2: "), std::string::npos)
        << bad;
  }
}

constexpr const char* kMmlu =
    "question,choice0,choice1,choice2,choice3,answer\n"
    "\"One, or two?\",1,2,3,4,1\nThree?,a,b,c,d,C\n";

TEST(Mmlu, AsksForLetters) {
  const std::vector<Question> questions = parse_mmlu(kMmlu, "f", "abstract_algebra");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].query, "One, or two?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_EQ(questions[0].choices, (std::vector<std::string>{"A", "B", "C", "D"}));
  EXPECT_EQ(questions[0].gold, 1);
  EXPECT_EQ(questions[1].gold, 2);
  EXPECT_NE(questions[0].header.find("about abstract algebra.\n\n"), std::string::npos);
}

TEST(Mmlu, OfAnotherShapeIsRefusedWithTheRow) {
  EXPECT_NE(message_of([] { parse_mmlu("q,a,b,c,d,0\nq,a,b,0\n", "f", "s"); }).find("row 2"),
            std::string::npos);
  EXPECT_NE(message_of([] { parse_mmlu("q,a,b,c,d,0\nq,a,b,c,d,E\n", "f", "s"); }).find("row 2"),
            std::string::npos);
}

TEST(Mmlu, TakesExamplesOfTheSameSubject) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("tessera_mmlu_" + std::to_string(getpid()));
  fs::create_directories(folder / "dev");
  fs::create_directories(folder / "test");
  std::ofstream(folder / "dev/birds_dev.csv") << "d1,a,b,c,d,0\nd2,a,b,c,d,3\nd3,a,b,c,d,1\n";
  std::ofstream(folder / "test/birds_test.csv") << "t1,a,b,c,d,2\n";
  const std::vector<Question> questions = load_task("mmlu", folder, 2);
  fs::remove_all(folder);
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].shots.size(), 2u);
  EXPECT_EQ(context_of(questions[0], 1),
            "The following are multiple choice questions (with answers) about birds.\n\n"
            "d2\nA. a\nB. b\nC. c\nD. d\nAnswer: D\n\nt1\nA. a\nB. b\nC. c\nD. d\nAnswer:");
  EXPECT_NE(message_of([&] { load_task("mmlu", folder, 2); }).find("no folder test"),
            std::string::npos);
}

TEST(Shots, AreTakenFromTheQuestionsAndNotAsked) {
  const std::vector<Question> questions = with_shots(parse_hellaswag(kHellaSwag, "f"), 1);
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(context_of(questions[0], 5), "A man sits. he pulls.\n\nA lady");
  EXPECT_EQ(context_of(questions[0], 0), "A lady");
}

TEST(Choose, TakesTheLikeliestAndTheLikeliestByte) {
  const Question question = {.query = "q", .choices = {"a", "bbbbbbbbbb", "cc"}, .gold = 1};
  const Choice choice = choose(question, std::vector<double>{-3.0, -5.0, -4.0});
  EXPECT_EQ(choice.likeliest, 0);
  EXPECT_EQ(choice.likeliest_by_bytes, 1);
  Accuracy accuracy;
  accuracy.add(question, choice);
  EXPECT_EQ(accuracy.share(), 0.0);
  EXPECT_EQ(accuracy.share_by_bytes(), 1.0);
}

TEST(Choose, TakesTheFirstOfEquals) {
  const Question question = {.query = "q", .choices = {"a", "b"}, .gold = 0};
  EXPECT_EQ(choose(question, std::vector<double>{-1.0, -1.0}).likeliest, 0);
}

TEST(Accuracy, HasTheStandardErrorOfAShare) {
  const Accuracy accuracy = {.num_questions = 100, .num_right = 50, .num_right_by_bytes = 20};
  EXPECT_DOUBLE_EQ(accuracy.standard_error(accuracy.share()), 0.05);
  EXPECT_DOUBLE_EQ(accuracy.standard_error(accuracy.share_by_bytes()), 0.04);
}

class ContinuationJob : public ::testing::Test {
 protected:
  Tokenizer tokenizer_ = Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
};

TEST_F(ContinuationJob, ScoresTheTokensOfTheContinuation) {
  const ScoreJob job = continuation_job(tokenizer_, "The city of", " London", 100);
  const std::vector<int32_t> context = tokenizer_.encode("The city of");
  const std::vector<int32_t> whole = tokenizer_.encode("The city of London");
  EXPECT_EQ(job.tokens.front(), tokenizer_.prefix().front());
  EXPECT_EQ(job.tokens.size(), whole.size() + 1);
  EXPECT_EQ(job.num_scored, static_cast<int64_t>(whole.size() - context.size()));
}

TEST_F(ContinuationJob, DropsTheOldestWhereTheContextIsFull) {
  const ScoreJob job = continuation_job(tokenizer_, "one two three four five", " London", 4);
  EXPECT_EQ(job.tokens.size(), 4u);
  EXPECT_EQ(job.tokens.front(), tokenizer_.prefix().front());
  EXPECT_EQ(job.tokens.back(), tokenizer_.encode("five London").back());
}

TEST_F(ContinuationJob, LeavesOutShotsThatDoNotFit) {
  Question question = {.query = "What?", .choices = {"A", "B"}, .gold = 0};
  for (int i = 0; i < 20; ++i) question.shots.push_back("A long example of some kind. A\n\n");
  const std::vector<ScoreJob> jobs = jobs_of(tokenizer_, question, 20, 64);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_LE(jobs[0].tokens.size(), 64u);
  EXPECT_GT(jobs[0].tokens.size(), 30u);
}

}  // namespace
}  // namespace tessera::apps
