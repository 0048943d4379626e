// From argv to a verb, and from what went wrong to one line.
// SPDX-License-Identifier: MIT
#include "apps/command_line.h"

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <span>

#include "apps/help.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/suggest.h"
#include "apps/verbs.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr size_t kMaxNoteBytes = 8192;  // more than any Error has

// The verb that the command line got to: bench e2e rather than bench.
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

// The environment variable a message is about, where the value came from there.
std::string environment_note(const CLI::App& verb, std::string_view message) {
  for (const CLI::Option* flag : verb.get_options()) {
    const std::string variable = env_name(verb, *flag);
    if (variable.empty() || std::getenv(variable.c_str()) == nullptr) continue;
    for (const std::string& name : flag->get_lnames()) {
      if (message.find("--" + name) != std::string_view::npos) {
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

// What was left over: a flag nobody knows, a verb nobody knows, or one word too many.
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

constexpr const char* kVerbose = "--verbose";

// Every verb has the flag, so that it may stand wherever others do.
void add_verbose(CLI::App& above) {
  for (CLI::App* verb : above.get_subcommands(nullptr)) {
    FlagSet(*verb, std::string(kAdvanced)).toggle(kVerbose, "Errors say where they were raised");
    add_verbose(*verb);
  }
}

bool is_verbose(const CLI::App& root) {
  for (const CLI::App* verb = deepest_verb(root); verb != &root; verb = verb->get_parent()) {
    const CLI::Option* flag = verb->get_option_no_throw(kVerbose);
    if (flag == nullptr || flag->count() == 0) continue;
    const std::string given = flag->results().back();  // of an environment variable any text
    return given != "0" && given != "false";
  }
  return false;
}

// One line on standard error. What an exception says may come from anywhere, so it is escaped here
// too, for those that are no Error.
void write_failure(const CLI::App& root, const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  const std::string where =
      error != nullptr && is_verbose(root) ? concat(" (", error->where(), ")") : std::string();
  write_note(concat("tessera: ", shown(failure.what(), kMaxNoteBytes), where, "\n"));
}

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
  app->set_version_flag("--version", TESSERA_VERSION)->description("Prints the version");
  app->require_subcommand(0, 1);
  app->footer(
      "tessera VERB -h shows a verb's flags. Each flag may be given by an environment\n"
      "variable: TESSERA_RUN_TOP_P=0.9 is run's --top-p 0.9. Counts may be written\n"
      "32K or 2G, powers of 1024. Status: 0 worked, 1 failed, 2 wrong command line,\n"
      "4 a step took longer than --step-timeout.");
  // Verbs take over the help flags that are there when they are added.
  app->set_help_all_flag("--help-all", "Shows every flag, with environment variables");
  add_run(*app, exit_status);
  add_bench(*app, exit_status);
  add_perplexity(*app, exit_status);
  add_eval(*app, exit_status);
  add_inspect(*app, exit_status);
  add_doctor(*app, exit_status);
  app->add_subcommand("version", "Prints the version")->callback([] {
    write_out(std::string(TESSERA_VERSION) + "\n");
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

std::string explain(const CLI::App& root, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return explain_extras(root, root.remaining(true));
  }
  const CLI::App& verb = *deepest_verb(root);
  return concat(error.what(), environment_note(verb, error.what()), "; see ", full_name(verb),
                " -h");
}

int run_command_line(int argc, const char* const* argv) {
  // A closed pipe shows as a write that fails, not as a signal that kills.
  std::signal(SIGPIPE, SIG_IGN);
  int exit_status = 0;
  const std::unique_ptr<CLI::App> app = make_command_line(exit_status);
  try {
    app->parse(argc, argv);
  } catch (const OutputClosed&) {
    return exit_status;
  } catch (const CLI::Success& asked_for) {  // help or the version
    return app->exit(asked_for);
  } catch (const CLI::ParseError& error) {
    write_note(concat("tessera: ", shown(explain(*app, error), kMaxNoteBytes), "\n"));
    return kUsage;
  } catch (const UsageError& error) {
    write_failure(*app, error);
    return kUsage;
  } catch (const std::bad_alloc&) {
    write_note("tessera: out of memory; try a smaller --context, --kv-bytes or --weights int8\n");
    return kFailure;
  } catch (const std::exception& error) {
    write_failure(*app, error);
    return kFailure;
  }
  return exit_status;
}

}  // namespace tessera::apps
