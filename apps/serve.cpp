// `tessera serve`: the OpenAI API over HTTP, and a web page.
// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>

#include "apps/e2e_subject.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/shape_tokenizer.h"
#include "apps/text_file.h"
#include "apps/verbs.h"
#include "core/text.h"
#include "engine/validate.h"
#include "server/engine_loop.h"
#include "server/http.h"
#include "server/service.h"

namespace tessera::apps {
namespace {

constexpr int kInterrupted = 130;
constexpr double kPollSeconds = 0.01;
constexpr double kFlushSeconds = 2;  // for clients to read the end of their answers

struct ServeOptions {
  ModelOptions model;
  std::string folder;
  std::string shape;  // not empty: random weights in place of a folder
  std::string name;
  server::HttpOptions http;
  std::string keys_file;
  std::vector<std::string> cors_origins;
  int64_t max_batch = 64;
  int64_t max_queue = 256;
  double drain_timeout = 30;
  std::string log = "all";
  bool logs_prompts = false;
};

EngineOptions engine_options_of(const ServeOptions& options, const model::ModelConfig& config) {
  EngineOptions made = engine_options(options.model, config);
  made.max_batch = options.max_batch;
  made.max_queue = options.max_batch + options.max_queue;
  add_draft_rows(made);
  return as_usage([&] { return engine::fill_options(made, config); });
}

server::ServiceOptions service_options_of(const ServeOptions& options) {
  server::ServiceOptions made{.max_requests = options.max_batch + options.max_queue,
                              .cors_origins = options.cors_origins,
                              .logs_prompts = options.logs_prompts,
                              .log = [](const std::string& line) { write_note(line + "\n"); },
                              .logs_success = options.log == "all"};
  if (!options.keys_file.empty()) {
    made.keys = as_usage([&] {
      return server::parse_keys(read_text_file(options.keys_file),
                                concat("--api-keys ", in_quotes(options.keys_file)));
    });
  }
  return made;
}

void check_serve_options(const ServeOptions& options) {
  if (options.http.tls_cert.empty() != options.http.tls_key.empty()) {
    throw UsageError("--tls-cert and --tls-key go together; one of them is missing");
  }
  if (options.max_batch < 1) {
    throw UsageError(concat("--max-batch is ", options.max_batch, "; give at least 1"));
  }
}

// The parts of the server, and how its life goes on: loading, ready, draining, over.
class Server {
 public:
  explicit Server(const ServeOptions& options)
      : options_(options),
        subject_(find_subject({.folder = options.folder, .shape = options.shape}, {})),
        folder_(subject_.folder),
        name_(options.name) {
    if (name_.empty()) name_ = subject_.folder.empty() ? subject_.name : folder_name();
  }

  int run() {
    const model::ModelConfig& config = subject_.config;
    engine_options_ = engine_options_of(options_, config);
    service_.emplace(service_options_of(options_), links());
    loop_.emplace(events(config));
    http_.emplace(options_.http,
                  [this](std::shared_ptr<server::Exchange> one) { service_->handle(one); });
    warn();
    http_->on_signal([this] { take_signal(); });
    loop_->start();
    http_->run();
    loop_->stop();
    service_->stop();
    http_.reset();
    if (failure_) std::rethrow_exception(failure_);
    return 0;
  }

 private:
  std::string folder_name() const {
    const std::string last = folder_.lexically_normal().filename().string();
    if (!last.empty() && last != ".") return last;
    return std::filesystem::weakly_canonical(folder_).filename().string();
  }

  server::ServiceLinks links() {
    return {.post = [this](std::function<void()> task) { http_->post(std::move(task)); },
            .submit = [this](server::Ticket ticket,
                             Request request) { loop_->submit(ticket, std::move(request)); },
            .cancel = [this](server::Ticket ticket) { loop_->cancel(ticket); },
            .engine_metrics = [this] { return loop_->metrics(); },
            .num_connections = [this] { return http_->num_connections(); }};
  }

  server::EngineLoop::Events events(const model::ModelConfig& config) {
    return {.load = [this, config] { return load(config); },
            .ready =
                [this](Engine& engine) {
                  server::ServedModel model = describe(engine);
                  http_->post([this, model = std::move(model)] { set_ready(model); });
                },
            .failed =
                [this](std::exception_ptr error) {
                  http_->post([this, error] {
                    failure_ = error;
                    http_->stop();
                  });
                },
            .delivered = [this] { http_->post([this] { service_->deliver(loop_->take()); }); },
            .died =
                [this](const std::string& why) {
                  http_->post([this, why] {
                    failure_ = std::make_exception_ptr(Error(why));
                    service_->set_dead(why);
                    drain();
                  });
                }};
  }

  std::unique_ptr<Engine> load(const model::ModelConfig& config) {
    if (folder_.empty()) {
      return make_subject_engine(subject_, engine_options_, make_shape_tokenizer(config.vocab));
    }
    engine::EarlyStart early = start_early(options_.model, folder_);
    engine_options_.on_load = [this](int64_t done, int64_t total) {
      service_->set_progress(done, total);
    };
    return engine::load(engine::open_model(folder_, config, engine_options_, std::move(early)));
  }

  // On the engine's thread, before anybody else sees the model.
  server::ServedModel describe(Engine& engine) {
    const ChatSettings settings =
        folder_.empty() ? ChatSettings{} : engine::read_chat_settings(folder_);
    prompts_.emplace(*engine.tokenizer(), settings);
    server::ServedModel model{.name = name_,
                              .tokenizer = engine.tokenizer(),
                              .prompts = &*prompts_,
                              .capacity = engine::capacity_of(engine_options_, engine.vocab(),
                                                              /*has_tokenizer=*/true),
                              .hidden = engine.hidden(),
                              .created = static_cast<int64_t>(std::time(nullptr))};
    if (settings.template_source) {
      model.tool_format = text::find_tool_format(*settings.template_source);
    }
    model.capacity.num_pages = engine.metrics().num_pages;
    model.description = concat(options_.model.dtype, " weights (", options_.model.weights, "), ",
                               options_.model.kv, " KV cache, on ", to_string(engine.device()));
    return model;
  }

  void set_ready(const server::ServedModel& model) {
    service_->set_ready(model);
    try {
      write_out(concat("serving ", name_, " on ", address(), "\n"));
    } catch (const OutputClosed&) {
      // Nobody reads the address, and the server serves all the same.
    }
  }

  std::string address() const {
    const bool is_v6 = options_.http.host.find(':') != std::string::npos;
    return concat(options_.http.tls_cert.empty() ? "http://" : "https://", is_v6 ? "[" : "",
                  options_.http.host, is_v6 ? "]" : "", ":", http_->port());
  }

  void warn() const {
    const std::string& host = options_.http.host;
    const bool is_local = host.starts_with("127.") || host == "localhost" || host == "::1";
    if (is_local || !options_.keys_file.empty()) return;
    write_note(concat("tessera: anybody who can reach ", host,
                      " may use this server; --api-keys FILE asks for a key\n"));
  }

  void take_signal() {
    if (num_signals_++ > 0) std::_Exit(kInterrupted);
    if (service_->state() == server::Service::State::loading) std::_Exit(0);
    service_->begin_drain();
    drain();
  }

  // Ends once every request is answered; after --drain-timeout the rest is cancelled.
  void drain() {
    http_->begin_drain();
    http_->after(options_.drain_timeout, [this] { service_->cancel_all(); });
    poll_drain(kFlushSeconds);
  }

  void poll_drain(double flush_seconds) {
    if (service_->is_idle()) {
      if (http_->num_connections() == 0 || flush_seconds <= 0) return http_->stop();
      flush_seconds -= kPollSeconds;
    }
    http_->after(kPollSeconds, [this, flush_seconds] { poll_drain(flush_seconds); });
  }

  const ServeOptions& options_;
  Subject subject_;
  std::filesystem::path folder_;  // empty: random weights
  std::string name_;
  EngineOptions engine_options_;
  std::optional<PromptMaker> prompts_;
  std::optional<server::Service> service_;
  std::optional<server::EngineLoop> loop_;
  std::optional<server::HttpServer> http_;
  std::exception_ptr failure_;
  int num_signals_ = 0;
};

}  // namespace

void add_serve(CLI::App& app, int& exit_status) {
  const auto options = std::make_shared<ServeOptions>();
  Verb verb(app, "serve", "Serves the OpenAI API and a web page over HTTP");
  verb.positional("MODEL", options->folder,
                  "A model's folder; the bundled model, or TESSERA_MODEL, if absent");
  FlagSet main(verb, "Server");
  main.value("--host", options->http.host, "ADDRESS", "Where to listen; 0.0.0.0 is everywhere");
  main.ranged("--port", options->http.port, 0, 65535, "N", "0: any free one");
  main.value("--name", options->name, "NAME", "What clients call the model; its folder if absent");
  main.value("--api-keys", options->keys_file, "FILE",
             "Only requests with one of these keys are answered");
  main.quantity("--max-batch", options->max_batch, "N", "Sequences in one step");
  main.quantity("--max-queue", options->max_queue, "N",
                "Requests that may wait; more are answered 429");
  FlagSet more(verb, "Advanced server");
  more.list("--cors-origin", options->cors_origins, "URL",
            "A web site whose pages may use the server; may be repeated");
  more.value("--tls-cert", options->http.tls_cert, "FILE", "Certificate chain in PEM: HTTPS");
  more.value("--tls-key", options->http.tls_key, "FILE", "Its private key in PEM");
  more.quantity("--max-body", options->http.limits.body_bytes, "SIZE", "Largest body of a request");
  more.quantity("--max-connections", options->http.limits.connections, "N", "At once");
  more.quantity("--stream-buffer", options->http.limits.stream_bytes, "SIZE",
                "What a client may be behind before its stream is ended");
  more.value("--read-timeout", options->http.limits.request_seconds, "SECONDS",
             "For a request to arrive");
  more.value("--write-timeout", options->http.limits.write_seconds, "SECONDS",
             "For a client that reads nothing");
  more.value("--drain-timeout", options->drain_timeout, "SECONDS",
             "For requests in progress to end after SIGTERM or Ctrl-C");
  more.value("--shape", options->shape, "NAME",
             "Random weights in the shape of a known model, to measure speed: llama3-8b");
  more.choice("--log", options->log, {"all", "errors"}, "Which requests are logged");
  more.toggle("--log-prompts", options->logs_prompts, "The log shows what clients wrote");
  add_model_flags(verb, options->model);
  verb.on_run([options, &exit_status] {
    check_serve_options(*options);
    exit_status = Server(*options).run();
  });
}

}  // namespace tessera::apps
