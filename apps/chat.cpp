// The chat loop.
// SPDX-License-Identifier: MIT
#include "apps/chat.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "apps/generate.h"
#include "apps/output.h"
#include "apps/run_options.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

constexpr std::string_view kHelp =
    "/help   this\n"
    "/reset  forget the conversation\n"
    "/quit   leave; so does Ctrl-D\n"
    "Ctrl-C  stops the answer. A line that ends with \\ goes on in the next.\n";

// One line without its newline; none at the end of input; empty if interrupted.
std::optional<std::string> read_line(InterruptGuard& interrupt) {
  char* memory = nullptr;
  size_t capacity = 0;
  errno = 0;
  const ssize_t length = getline(&memory, &capacity, stdin);
  const bool is_interrupted = length < 0 && (errno == EINTR || interrupt.is_raised());
  std::string line = length > 0 ? std::string(memory, static_cast<size_t>(length)) : std::string();
  std::free(memory);
  if (is_interrupted) {
    std::clearerr(stdin);
    interrupt.clear();
    write_out("\n/quit or Ctrl-D leaves\n");
    return std::string();
  }
  if (length < 0) return std::nullopt;
  if (line.ends_with('\n')) line.pop_back();
  return line;
}

// Joins lines that end with a backslash.
std::optional<std::string> read_question(InterruptGuard& interrupt) {
  write_out("> ");
  std::optional<std::string> text = read_line(interrupt);
  while (text && text->ends_with('\\')) {
    text->pop_back();
    write_out(". ");
    const std::optional<std::string> more = read_line(interrupt);
    if (!more) break;
    *text += "\n" + *more;
  }
  return text;
}

// False for the command to leave.
bool obey(ChatCommand command, Conversation& conversation) {
  switch (command) {
    case ChatCommand::quit: return false;
    case ChatCommand::reset: conversation.reset(); break;
    case ChatCommand::unknown: write_out("no such command\n"); [[fallthrough]];
    case ChatCommand::help: write_out(kHelp); break;
    case ChatCommand::none: break;
  }
  return true;
}

}  // namespace

ChatCommand parse_chat_command(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos || line[first] != '/') return ChatCommand::none;
  const std::string_view word = line.substr(first, line.find_last_not_of(" \t") - first + 1);
  if (word == "/help" || word == "/?") return ChatCommand::help;
  if (word == "/quit" || word == "/exit" || word == "/bye") return ChatCommand::quit;
  if (word == "/reset" || word == "/clear") return ChatCommand::reset;
  // A path or a formula may begin with a slash, so only a bare word is a command.
  return word.find_first_of(" /", 1) == std::string_view::npos ? ChatCommand::unknown
                                                               : ChatCommand::none;
}

Conversation::Conversation(std::string system) : system_(std::move(system)) { reset(); }

void Conversation::reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back({.role = "system", .content = system_});
}

void Conversation::ask(std::string text) { messages_.push_back({"user", std::move(text)}); }
void Conversation::answer(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
void Conversation::take_back() { messages_.pop_back(); }

void run_chat(Engine& engine, const PromptMaker& prompts, const ChatRun& settings) {
  InterruptGuard interrupt;
  Conversation conversation(settings.system);
  write_out(settings.uses_template
                ? "Type a message. /help shows the commands.\n"
                : "A base model: it continues each line you type. /help shows the commands.\n");
  while (const std::optional<std::string> line = read_question(interrupt)) {
    const ChatCommand command = parse_chat_command(*line);
    if (command != ChatCommand::none) {
      if (!obey(command, conversation)) return;
      continue;
    }
    if (line->empty()) continue;
    conversation.ask(*line);
    try {
      Request request = settings.request;
      request.prompt = settings.uses_template ? prompts.chat(conversation.messages())
                                              : prompts.continuation(*line, settings.has_special);
      fit_to_context(request, engine.max_context());
      interrupt.clear();
      const Generation made =
          generate(engine, std::move(request), write_out, [&] { return interrupt.is_raised(); });
      interrupt.clear();
      write_out("\n");
      conversation.answer(made.outputs.front().text);
      write_note(concat("[", show(made.speeds), "]\n"));
    } catch (const Error& error) {
      if (engine.metrics().is_dead) throw;
      conversation.take_back();
      write_note(concat("tessera: ", error.what(), "; /reset forgets the conversation\n"));
    }
    if (!settings.uses_template) conversation.reset();
  }
  write_out("\n");
}

}  // namespace tessera::apps
