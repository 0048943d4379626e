// The API: which path does what, who may ask, and the requests in progress.
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/access.h"
#include "server/answer.h"
#include "server/engine_loop.h"
#include "server/generation_request.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/worker.h"

namespace tessera::server {

struct ServiceOptions {
  int64_t max_requests = 320;     // admitted at once, running and waiting; more are answered 429
  std::vector<ApiKey> keys = {};  // empty: anybody may ask
  std::vector<std::string> cors_origins = {};
  bool logs_prompts = false;
  std::function<void(const std::string& line)> log = {};  // JSON, without a newline
  bool logs_success = true;                               // also requests that went well
};

// What the service needs from what is around it.
struct ServiceLinks {
  std::function<void(std::function<void()>)> post;  // to the I/O thread
  std::function<void(Ticket, Request)> submit;
  std::function<void(Ticket)> cancel;
  std::function<EngineMetrics()> engine_metrics;
  std::function<int64_t()> num_connections;
};

class Service {
 public:
  enum class State : uint8_t { loading, ready, draining, dead };

  struct Route {
    std::string_view method;
    std::string_view path;  // a last part {id} stands for any
    bool is_public;         // needs no key
    void (Service::*handle)(const std::shared_ptr<Exchange>&);
  };
  static std::span<const Route> routes();

  Service(ServiceOptions options, ServiceLinks links);

  // On the I/O thread:
  void handle(const std::shared_ptr<Exchange>& exchange);
  void deliver(std::vector<Delivery> news);
  void set_ready(ServedModel model);
  void begin_drain() { state_ = state_ == State::dead ? state_ : State::draining; }
  void set_dead(const std::string& why);
  void cancel_all();
  bool is_idle() const { return jobs_.empty(); }
  State state() const { return state_; }
  void stop() { reader_.stop(); }

  // From the thread that loads.
  void set_progress(int64_t done_bytes, int64_t total_bytes);

 private:
  // One request of a client: as many tickets as it has prompts.
  struct Job {
    std::shared_ptr<Exchange> exchange;
    Answer answer;
    std::optional<size_t> key = {};
    std::string route = {};
    Clock::time_point arrival = {};
    size_t num_tickets = 0;     // unfinished
    bool is_streaming = false;  // the head was sent
    bool is_over = false;       // answered, or the client is gone
    Clock::time_point first_token = {};
    std::map<int64_t, Clock::time_point> last_tokens = {};  // by sequence
    RequestTimes times = {};
    FinishReason finish = FinishReason::none;
    std::string prompt = {};  // only if prompts are logged
  };

  void dispatch(const std::shared_ptr<Exchange>& exchange);
  static std::string allowed_methods(std::string_view path);  // "GET, HEAD"; empty: no route
  const Route* find_route(const HttpRequest& request) const;
  void check_access(const HttpRequest& request, const Route& route) const;
  void respond(const std::shared_ptr<Exchange>& exchange, HttpResponse response);
  void refuse(const std::shared_ptr<Exchange>& exchange, const std::exception& error);
  void add_cors(const HttpRequest& request, HttpResponse& response) const;

  void get_page(const std::shared_ptr<Exchange>& exchange);
  void get_health(const std::shared_ptr<Exchange>& exchange);
  void get_metrics(const std::shared_ptr<Exchange>& exchange);
  void get_version(const std::shared_ptr<Exchange>& exchange);
  void get_openapi(const std::shared_ptr<Exchange>& exchange);
  void get_models(const std::shared_ptr<Exchange>& exchange);
  void get_model(const std::shared_ptr<Exchange>& exchange);
  void post_tokenize(const std::shared_ptr<Exchange>& exchange);
  void post_detokenize(const std::shared_ptr<Exchange>& exchange);
  void post_completions(const std::shared_ptr<Exchange>& exchange);
  void post_chat(const std::shared_ptr<Exchange>& exchange);
  void post_embeddings(const std::shared_ptr<Exchange>& exchange);

  void check_ready() const;
  void generate(Api api, const std::shared_ptr<Exchange>& exchange);
  void read_elsewhere(const std::shared_ptr<Exchange>& exchange, Clock::time_point arrival,
                      std::function<GenerationRequest()> read);
  void compile(GenerationRequest& request);
  void check_room(size_t num_prompts, std::optional<size_t> key) const;
  void admit(GenerationRequest request, const std::shared_ptr<Exchange>& exchange,
             Clock::time_point arrival);
  void deliver_one(Delivery& news);
  void note_times(Job& job, const Delivery& news);
  void finish_job(Job& job);
  void fail_job(Job& job, const std::string& why);
  void close_job(Job& job);
  void cancel_job(const Job& job);
  void log_job(const Job& job, int status) const;
  void log_refusal(const HttpRequest& request, int status, std::string_view why) const;
  std::string model_json() const;

  ServiceOptions options_;
  ServiceLinks links_;
  State state_ = State::loading;
  std::optional<ServedModel> model_;
  ServerMetrics metrics_;
  std::map<Ticket, std::pair<std::shared_ptr<Job>, size_t>> jobs_;  // and which prompt it is
  std::map<size_t, int64_t> requests_of_key_;
  Ticket last_ticket_ = 0;
  uint64_t last_request_ = 0;
  std::string id_stem_;  // of this process, for the ids of requests
  std::atomic<int64_t> done_bytes_ = 0, total_bytes_ = 0;
  ConstraintCache constraints_;
  Worker reader_;  // last: its tasks use the members above
};

}  // namespace tessera::server
