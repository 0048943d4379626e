// Parses argv, runs a verb, and turns errors into one line.
// SPDX-License-Identifier: MIT
#include "apps/command_line.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <new>
#include <span>
#include <sstream>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "core/build_info.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kNoMemory = 3;
constexpr size_t kMaxNoteBytes = 8192;  // longer than any Error

// The innermost verb that was given: bench e2e rather than bench.
const CLI::App* deepest_verb(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? &app : deepest_verb(*parsed.back());
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* flag : verb.get_options()) {
    for (const std::string& name : flag->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool is_typed(std::string_view name, std::span<const std::string> words) {
  const bool is_long = name.starts_with("--");
  return std::ranges::any_of(words, [&](std::string_view word) {
    if (word == name) return true;
    // --top-k=5, -n5
    return word.starts_with(name) && (!is_long || word[name.size()] == '=');
  });
}

bool is_given(const CLI::Option& flag, std::span<const std::string> words) {
  const auto has = [&](const char* dashes, const std::vector<std::string>& names) {
    return std::ranges::any_of(
        names, [&](const std::string& name) { return is_typed(dashes + name, words); });
  };
  return has("--", flag.get_lnames()) || has("-", flag.get_snames());
}

// The position of `name` as a whole word: not --top-k in --top-kay.
size_t find_flag(std::string_view message, std::string_view name) {
  for (size_t at = message.find(name); at != std::string_view::npos;
       at = message.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool is_whole =
        end == message.size() || (message[end] != '-' && message[end] != '_' &&
                                  std::isalnum(static_cast<unsigned char>(message[end])) == 0);
    if (is_whole) return at;
  }
  return std::string_view::npos;
}

// Names the environment variable that a message is about, if the value came from it.
std::string environment_note(const CLI::App& verb, std::string_view message,
                             std::span<const std::string> words) {
  for (const CLI::Option* flag : verb.get_options()) {
    const std::string variable = env_name(verb, *flag);
    if (variable.empty() || std::getenv(variable.c_str()) == nullptr) continue;
    for (const std::string& name : flag->get_lnames()) {
      if (find_flag(message, "--" + name) != std::string_view::npos && !is_given(*flag, words)) {
        return concat(" (", variable, " is '", shown(std::getenv(variable.c_str())), "')");
      }
    }
  }
  return {};
}

// "no flag --sede; did you mean --seed? (tessera run -h lists them)".
std::string unknown(std::string_view what, std::string_view word,
                    std::span<const std::string> candidates, const CLI::App& verb) {
  const std::string meant = did_you_mean(word, candidates);
  const std::string listed = full_name(verb) + " -h lists them";
  return concat("no ", what, meant, meant.empty() ? "; " + listed : " (" + listed + ")");
}

// Explains leftover words: an unknown flag, an unknown verb, or one word too many.
std::string explain_extras(const CLI::App& root, const std::vector<std::string>& extras) {
  const CLI::App& verb = *deepest_verb(root);
  for (const std::string& word : extras) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    return unknown("flag " + flag, flag, flag_names(verb), verb);
  }
  const std::string word = extras.empty() ? "" : extras.front();
  if (&verb == &root) return unknown("verb '" + word + "'", word, verb_names(root), root);
  return concat("'", word, "' is one word too many; quote a prompt of several words, and see ",
                full_name(verb), " -h");
}

// Every verb gets the flag, so that it may be given anywhere.
void add_verbose(CLI::App& above) {
  for (CLI::App* verb : above.get_subcommands(nullptr)) {
    FlagSet(*verb, std::string(kAdvanced))
        .toggle(kVerbose, "Errors say where they were raised; run also says how long loading took");
    add_verbose(*verb);
  }
}

bool is_verbose(const CLI::App& root) {
  for (const CLI::App* verb = deepest_verb(root); verb != &root; verb = verb->get_parent()) {
    if (const std::optional<bool> given = toggle_of(*verb, kVerbose)) return *given;
  }
  return false;
}

// Where an error was raised if --verbose was given, else empty.
std::string place_of(const CLI::App& root, const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && is_verbose(root) ? concat(" (", error->where(), ")") : std::string();
}

// "0.1.0, commit 0123456789ab".
std::string version_text() { return concat(kVersion, ", commit ", kCommit); }

void print_help_of(const CLI::App& root, const std::vector<std::string>& path) {
  const CLI::App* verb = &root;
  for (const std::string& word : path) {
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : verb->get_subcommands(nullptr)) {
      if (sub->get_name() == word) next = sub;
    }
    if (next == nullptr) {
      throw UsageError(unknown("verb '" + word + "'", word, verb_names(*verb), *verb));
    }
    verb = next;
  }
  write_out(HelpFormatter().make_help(verb, "", CLI::AppFormatMode::Normal));
}

}  // namespace

std::unique_ptr<CLI::App> make_command_line(int& exit_status) {
  auto app = std::make_unique<CLI::App>("LLM inference: one binary, a verb a task.", "tessera");
  CLI::App* root = app.get();
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "Shows this page");
  app->set_version_flag("--version", version_text())
      ->description("Prints the version and the commit");
  app->require_subcommand(0, 1);
  app->footer(
      "tessera VERB -h shows a verb's flags. Each flag may be given by an environment\n"
      "variable: TESSERA_RUN_TOP_P=0.9 is run's --top-p 0.9. Counts may be written\n"
      "32K or 2G, powers of 1024. Status: 0 worked, 1 failed, 2 wrong command line,\n"
      "3 out of memory, 4 a step took longer than --step-timeout, 130 interrupted.");
  // Verbs inherit the help flags that exist when they are added.
  app->set_help_all_flag("--help-all", "Shows every flag, with environment variables");
  add_run(*app, exit_status);
  add_serve(*app, exit_status);
  add_bench(*app, exit_status);
  add_perplexity(*app, exit_status);
  add_eval(*app, exit_status);
  add_quantize(*app, exit_status);
  add_inspect(*app, exit_status);
  add_doctor(*app, exit_status);
  app->add_subcommand("version", "Prints the version and the commit")->callback([] {
    write_out(version_text() + "\n");
  });
  const auto path = std::make_shared<std::vector<std::string>>();
  CLI::App* help = app->add_subcommand("help", "Shows this page, or that of a verb");
  help->add_option("VERB", *path, "Such as run, or bench e2e");
  help->callback([root, path] { print_help_of(*root, *path); });
  app->callback([root] {
    if (root->get_subcommands().empty()) {
      throw UsageError(
          "no verb was given; tessera -h lists them, and tessera run answers a prompt");
    }
  });
  add_verbose(*app);
  attach_environment(*app);
  return app;
}

std::string as_typed(const CLI::App& root, std::string message,
                     std::span<const std::string> words) {
  const CLI::App& verb = *deepest_verb(root);
  message += environment_note(verb, message, words);
  for (const CLI::Option* flag : verb.get_options()) {
    if (flag->get_snames().empty() || flag->get_lnames().empty()) continue;
    const std::string long_name = "--" + flag->get_lnames().front();
    const std::string short_name = "-" + flag->get_snames().front();
    if (is_typed(long_name, words) || !is_typed(short_name, words)) continue;
    for (size_t at = find_flag(message, long_name); at != std::string::npos;
         at = find_flag(message, long_name)) {
      message.replace(at, long_name.size(), short_name);
    }
  }
  return message;
}

std::string explain(const CLI::App& root, const CLI::ParseError& error,
                    std::span<const std::string> words) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return explain_extras(root, root.remaining(true));
  }
  return concat(as_typed(root, error.what(), words), "; see ", full_name(*deepest_verb(root)),
                " -h");
}

namespace {

// Prints help or the version. CLI11 would not notice a failing write.
void print_asked_for(const CLI::App& app, const CLI::Success& asked_for) {
  std::ostringstream text;
  app.exit(asked_for, text, text);
  write_out(text.str());
}

}  // namespace

int run_command_line(int argc, const char* const* argv) {
  // A closed pipe must be a failing write, not a signal that kills.
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  int exit_status = 0;
  const std::unique_ptr<CLI::App> app = make_command_line(exit_status);
  // The text of an exception may come from anywhere, so it is escaped here too.
  const auto complain = [&](const std::string& what, int status, const std::string& where = {}) {
    write_note(concat("tessera: ", shown(what, kMaxNoteBytes), where, "\n"));
    return status;
  };
  const auto complain_of = [&](const std::exception& error, int status) {
    return complain(as_typed(*app, error.what(), words), status, place_of(*app, error));
  };
  try {
    try {
      app->parse(argc, argv);
    } catch (const CLI::Success& asked_for) {
      print_asked_for(*app, asked_for);
    }
  } catch (const OutputClosed&) {
    return exit_status;
  } catch (const CLI::ParseError& error) {
    return complain(explain(*app, error, words), kUsage);
  } catch (const UsageError& error) {
    return complain_of(error, kUsage);
  } catch (const OutOfMemory& error) {
    return complain_of(error, kNoMemory);
  } catch (const std::bad_alloc&) {
    return complain("out of memory; try a smaller --context, --kv-bytes or --weights int8",
                    kNoMemory);
  } catch (const std::exception& error) {
    return complain_of(error, kFailure);
  }
  return exit_status;
}

}  // namespace tessera::apps
