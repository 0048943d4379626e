// Help pages, from the options as they were added.
// SPDX-License-Identifier: MIT
#include "apps/help.h"

#include <sstream>
#include <utility>
#include <vector>

#include "apps/options.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 28;  // where descriptions begin

// Adds `text` to a page that stands at the end of `line`, going on in new lines from `indent`.
void add_wrapped(std::string& page, std::string line, const std::string& text, size_t indent) {
  std::istringstream words(text);
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      page += line + "\n";
      line = std::string(indent, ' ');
      is_first = true;
    }
    line += (is_first ? "" : " ") + word;
  }
  page += line + "\n";
}

// `label` and then `text` beside it; below it where the label is too long.
void add_entry(std::string& page, const std::string& label, const std::string& text,
               size_t indent) {
  std::string line = "  " + label;
  if (line.size() + 2 > indent) {
    page += line + "\n";
    line.clear();
  }
  line.resize(indent, ' ');
  add_wrapped(page, std::move(line), text, indent);
}

// "-n, --max-tokens N".
std::string label_of(const CLI::Option& flag) {
  std::string label;
  for (const std::string& name : flag.get_snames()) label += (label.empty() ? "-" : ", -") + name;
  for (const std::string& name : flag.get_lnames()) label += (label.empty() ? "--" : ", --") + name;
  if (flag.get_items_expected_max() > 0) label += " " + flag.get_type_name();
  return label;
}

std::string description_of(const CLI::App& verb, const CLI::Option& flag, bool is_all) {
  std::string text = flag.get_description();
  const std::string value = flag.get_default_str();
  if (!value.empty() && value != "0" && value != "-1" && value != "[]" && value != "\"\"") {
    text += concat(" (default ", value, ")");
  }
  const std::string environment = env_name(verb, flag);
  if (is_all && !environment.empty()) text += concat(" [", environment, "]");
  return text;
}

std::string usage_of(const CLI::App& verb) {
  std::string usage = full_name(verb);
  if (verb.get_require_subcommand_min() > 0) usage += " VERB";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) usage += concat(" [", option->get_name(true), "]");
  }
  return usage + " [flags]";
}

void add_flags(std::string& page, const CLI::App& verb, bool is_all) {
  for (const std::string& group : verb.get_groups()) {
    if (group.empty() || (!is_all && group.starts_with(kAdvanced))) continue;
    std::string entries;
    for (const CLI::Option* flag : verb.get_options()) {
      if (flag->get_group() != group || flag->get_positional()) continue;
      // Every verb has -h, which only the first page says, and --help-all, which the last line
      // does.
      if (flag == verb.get_help_ptr() && verb.get_parent() != nullptr) continue;
      if (flag == verb.get_help_all_ptr()) continue;
      add_entry(entries, label_of(*flag), description_of(verb, *flag, is_all), kIndent);
    }
    if (!entries.empty()) page += "\n" + group + ":\n" + entries;
  }
}

bool has_advanced(const CLI::App& verb) {
  for (const std::string& group : verb.get_groups()) {
    if (group.starts_with(kAdvanced)) return true;
  }
  return false;
}

}  // namespace

std::string full_name(const CLI::App& verb) {
  if (verb.get_parent() == nullptr) return verb.get_name();
  return full_name(*verb.get_parent()) + " " + verb.get_name();
}

std::string HelpFormatter::make_help(const CLI::App* verb, std::string,
                                     CLI::AppFormatMode mode) const {
  const bool is_all = mode == CLI::AppFormatMode::All;
  std::string page = usage_of(*verb) + "\n";
  add_wrapped(page, "  ", verb->get_description(), 2);
  std::string entries;
  for (const CLI::Option* option : verb->get_options()) {
    if (!option->get_positional()) continue;
    add_entry(entries, option->get_name(true), option->get_description(), kIndent);
  }
  if (!entries.empty()) page += "\n" + entries;
  entries.clear();
  for (const CLI::App* sub : verb->get_subcommands(nullptr)) {
    add_entry(entries, sub->get_name(), sub->get_description(), 16);
  }
  if (!entries.empty()) page += "\nVerbs:\n" + entries;
  add_flags(page, *verb, is_all);
  // Verbs are given the footer of the program when they are made.
  if (verb->get_parent() == nullptr) {
    page += "\n" + verb->get_footer() + "\n";
  } else if (!is_all) {
    page += concat("\n", has_advanced(*verb) ? "More flags, and e" : "E",
                   "nvironment variables: ", full_name(*verb), " --help-all\n");
  }
  return page;
}

}  // namespace tessera::apps
