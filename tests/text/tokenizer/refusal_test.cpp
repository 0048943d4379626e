// Files that are refused, and the messages.
// SPDX-License-Identifier: MIT
#include "tests/ops/refusal.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

// One change to a valid file: the value at a JSON pointer.
struct Change {
  const char* at;
  const char* value;  // JSON text
  std::initializer_list<std::string_view> words;
};

void expect_refused(const json& base, std::initializer_list<Change> changes) {
  EXPECT_NO_THROW(parse(base));
  for (const Change& change : changes) {
    json file = base;
    file[json::json_pointer(change.at)] = json::parse(change.value);
    EXPECT_TRUE(refused([&] { parse(file); }, change.words)) << change.at << " = " << change.value;
  }
}

TEST(Refusal, OfModels) {
  expect_refused(
      byte_level_file(),
      {
          {"/model", "null", {"tokenizer.json", "has no 'model'"}},
          {"/model", "7", {"tokenizer.json: model", "is not an object"}},
          {"/model/type", "\"Unigram\"", {"'Unigram'", "supported: BPE"}},
          {"/model", R"({"type":"Unigram","vocab":[["a",0.5]]})", {"'Unigram'", "supported: BPE"}},
          {"/model", R"({"type":"WordPiece","vocab":{"a":0}})", {"'WordPiece'"}},
          {"/model", R"({"vocab":{"a":0}})", {"without a type"}},
          {"/model", R"({"type":"BPE","vocab":{"a":0}})", {"no 'merges'"}},
          {"/model", R"({"type":"BPE","merges":[]})", {"no 'vocab'"}},
          {"/model/dropout", "0.1", {"model.dropout", "0.1"}},
          {"/model/dropout", "\"no\"", {"model.dropout", "not a number"}},
          {"/model/continuing_subword_prefix", "\"##\"", {"continuing_subword_prefix", "'##'"}},
          {"/model/end_of_word_suffix", "\"</w>\"", {"end_of_word_suffix", "'</w>'"}},
          {"/model/unk_token", "\"<none>\"", {"unk_token", "'<none>'", "no token"}},
          {"/model/ignore_merges", "1", {"model.ignore_merges", "neither true nor false"}},
      });
}

TEST(Refusal, OfVocabularies) {
  expect_refused(byte_level_file(),
                 {
                     {"/model/vocab/a", "-1", {"'a'", "is -1"}},
                     {"/model/vocab/a", "1.5", {"'a'", "1.5", "expected an integer"}},
                     {"/model/vocab/a", "\"x\"", {"'a'", "expected an integer"}},
                     {"/model/vocab/a", "null", {"'a'", "expected an integer"}},
                     {"/model/vocab/a", "[1]", {"'a'", "expected an integer"}},
                     {"/model/vocab/a", "{}", {"'a'", "expected an integer"}},
                     {"/model/vocab/a", "2000000000", {"'a'", "2000000000", "may have ids"}},
                     {"/model/vocab/a", "18446744073709551615", {"'a'", "is -1"}},
                     {"/model/vocab/a", "5", {"id 5", "'a'"}},
                     {"/added_tokens", "{}", {"added_tokens", "not an array"}},
                     {"/added_tokens", "[7]", {"added_tokens[0]", "not an object"}},
                     {"/added_tokens/0/id", "\"0\"", {"added_tokens[0].id", "not an integer"}},
                     {"/added_tokens/0/id", "-5", {"'<|endoftext|>'", "-5"}},
                     {"/added_tokens/0/id", "9", {"id 9", "'<|endoftext|>'"}},
                     {"/added_tokens/0/id", "419999", {"'<|endoftext|>'", "419999"}},
                     {"/added_tokens/0/id", "1000", {"'<|endoftext|>'", "two ids", "1000"}},
                     {"/added_tokens/0/content", "\"<other>\"", {"id 0", "'<other>'"}},
                     {"/added_tokens/0/content", "3", {"added_tokens[0].content", "not a text"}},
                     {"/added_tokens/0/special", "3", {"added_tokens[0].special", "neither"}},
                 });
}

TEST(Refusal, OfTokensTwice) {
  json file = byte_level_file();
  file["added_tokens"].push_back(file["added_tokens"][0]);
  EXPECT_TRUE(refused([&] { parse(file); }, {"id 0", "'<|endoftext|>'"}));
  file["added_tokens"][1]["content"] = std::string(600, 'x');
  EXPECT_TRUE(refused([&] { parse(file); }, {"added_tokens[1]", "600 bytes"}));
  const char* twice = R"({"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}})";
  EXPECT_TRUE(refused([&] { Tokenizer::parse(twice, "t"); }, {"t:", "'a'", "two ids"}));
}

TEST(Refusal, OfMerges) {
  expect_refused(byte_level_file(),
                 {
                     {"/model/merges", "{}", {"without a type"}},
                     {"/model/merges", "[7]", {"merge 0", "neither"}},
                     {"/model/merges", "[\"a\"]", {"merge 0", "'a'", "one space"}},
                     {"/model/merges", "[\"a b c\"]", {"merge 0", "'a b c'", "one space"}},
                     {"/model/merges", "[[\"a\"]]", {"merge 0", "1 parts"}},
                     {"/model/merges", "[[\"a\",\"b\",\"c\"]]", {"merge 0", "3 parts"}},
                     {"/model/merges", "[[[\"a\"],\"b\"]]", {"merge 0", "neither"}},
                     {"/model/merges", "[{\"a\":\"b\"}]", {"merge 0", "neither"}},
                     {"/model/merges", "[[\"a\",7]]", {"merge 0", "neither"}},
                     {"/model/merges", "[\"~ a\"]", {"merges[0]", "'~a' is not in"}},
                     {"/model/merges", "[\"zz a\"]", {"merges[0]", "'zz' is not in"}},
                     {"/model/merges", "[\"a zz\"]", {"merges[0]", "'zz' is not in"}},
                     {"/model/merges", "[\" a\"]", {"merges[0]", "'' is not in"}},
                 });
}

TEST(Refusal, OfPreTokenizers) {
  expect_refused(
      byte_level_file(),
      {
          {"/pre_tokenizer", "7", {"pre_tokenizer", "not an object"}},
          {"/pre_tokenizer", "{}", {"pre_tokenizer", "no 'type'"}},
          {"/pre_tokenizer", R"({"type":"BertPreTokenizer"})", {"'BertPreTokenizer'", "supported"}},
          {"/pre_tokenizer", R"({"type":"Sequence"})", {"no 'pretokenizers'"}},
          {"/pre_tokenizer", R"({"type":"Split","behavior":"Isolated"})", {"no 'pattern'"}},
          {"/pre_tokenizer",
           R"({"type":"Split","pattern":{"Glob":"*"},"behavior":"Isolated"})",
           {"pre_tokenizer.pattern", "neither a Regex nor a String"}},
          {"/pre_tokenizer",
           R"({"type":"Split","pattern":{"String":"a"},"behavior":"Glued"})",
           {"pre_tokenizer.behavior", "'Glued'", "Isolated"}},
          {"/pre_tokenizer",
           R"({"type":"Metaspace","replacement":"__"})",
           {"replacement", "'__'", "one character"}},
          {"/pre_tokenizer",
           R"({"type":"Metaspace","replacement":"_","prepend_scheme":"maybe"})",
           {"prepend_scheme", "'maybe'"}},
          {"/pre_tokenizer",
           R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"},
               {"type":"ByteLevel"}]})",
           {"ByteLevel", "once"}},
      });
}

TEST(Refusal, OfPatterns) {
  struct Case {
    std::string pattern;
    std::initializer_list<std::string_view> words;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"a(b", {"'a(b'", "offset 3", "missing closing parenthesis"}},
           {"[a", {"offset 2", "missing terminating ]"}},
           {"*", {"offset 0", "quantifier"}},
           {"a\\C", {"\\C"}},
           {"\\p{Nonsense}", {"unknown property"}},
           {"\\Qa\\E", {"\\Q at offset 0", "not supported"}},
           {"[a&&[b]]", {"&& within a class", "offset 2"}},
           {"[a[b]]", {"class within a class", "offset 2"}},
           {"(?<=a+)b", {"lookbehind"}},
           {std::string(150, '(') + std::string(150, ')'), {"nest"}},
           {std::string(20'000, 'a'), {"20000 bytes"}},
           {"(a{1,9999}){1,9999}", {"too large"}},
       }) {
    json file = byte_level_file();
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", c.pattern}}}, {"behavior", "Removed"}};
    EXPECT_TRUE(refused([&] { parse(file); }, c.words)) << c.pattern.substr(0, 40);
    EXPECT_TRUE(refused([&] { parse(file); }, {"tokenizer.json: pre_tokenizer.pattern.Regex"}));
  }
}

TEST(Refusal, OfTheOtherParts) {
  expect_refused(
      read_data("llama2"),
      {
          {"/normalizer", R"({"type":"Nmt"})", {"normalizer", "'Nmt'", "supported"}},
          {"/normalizer", R"({"type":"Replace","content":"a"})", {"no 'pattern'"}},
          {"/normalizer", R"({"type":"Prepend","prepend":7})", {"prepend", "not a text"}},
          {"/decoder", R"({"type":"CTC"})", {"decoder", "'CTC'", "supported"}},
          {"/decoder", R"({"type":"Strip","content":" ","start":-1,"stop":0})", {"-1 and 0"}},
          {"/decoder", R"({"type":"Strip","content":"ab","start":1,"stop":0})", {"one character"}},
          {"/decoder/decoders/3",
           R"({"type":"ByteFallback"})",
           {"decoders[3]", "'ByteFallback' after Fuse"}},
          {"/decoder/decoders/2",
           R"({"type":"Strip","content":" ","start":1,"stop":0})",
           {"decoders[2]", "'Strip' after ByteFallback"}},
          {"/post_processor", R"({"type":"Other"})", {"post_processor", "'Other'", "supported"}},
          {"/post_processor/single",
           R"([{"SpecialToken":{"id":"<s>"}}])",
           {"single", "no text 'A'"}},
          {"/post_processor/single", R"([{"Sequence":{"id":"B"}}])", {"single[0]", "'A'"}},
          {"/post_processor/single",
           R"([{"SpecialToken":{"id":"<x>"}},{"Sequence":{"id":"A"}}])",
           {"special_tokens", "no '<x>'"}},
          {"/post_processor/special_tokens/<s>/ids", "[99999]", {"99999", "no token"}},
          {"/post_processor/special_tokens/<s>/ids", "[-1]", {"-1", "no token"}},
      });
}

TEST(Refusal, OfWhatIsNoTokenizerFile) {
  struct Case {
    std::string text;
    std::initializer_list<std::string_view> words;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", {"mine.json", "not JSON"}},
           {"[]", {"mine.json", "not a JSON object"}},
           {"null", {"mine.json", "not a JSON object"}},
           {"{}", {"mine.json", "has no 'model'"}},
           {"{\"model\": {\"vocab\": {\"a\": 1",
            {"mine.json", "not JSON", "column 28", "end of input"}},
           {"{\"model\": \"\xFF\"}", {"mine.json", "not JSON"}},
           {"{\"model\": \"\\ud800\"}", {"mine.json", "not JSON"}},
           {std::string("\0", 1), {"mine.json", "is NUL"}},
       }) {
    EXPECT_TRUE(refused([&] { Tokenizer::parse(c.text, "mine.json"); }, c.words)) << c.text;
  }
  EXPECT_TRUE(refused([] { Tokenizer::load("no/such/tokenizer.json"); },
                      {"no/such/tokenizer.json", "there is no such file"}));
}

}  // namespace
}  // namespace tessera::testing
