// Requests that generate text: admitted, delivered, finished, cancelled.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "core/text.h"
#include "server/json_fields.h"
#include "server/log.h"
#include "server/service.h"

namespace tessera::server {
namespace {

constexpr size_t kLargeBody = 64 << 10;  // bytes that take long enough to hold up other clients

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// With one decimal.
double milliseconds(double seconds) { return std::round(seconds * 1e4) / 10; }

int64_t unix_seconds() { return static_cast<int64_t>(std::time(nullptr)); }

}  // namespace

void Service::check_ready() const {
  switch (state_) {
    case State::ready: return;
    case State::loading: throw ApiError(503, "the model is still being loaded; try again");
    case State::draining: throw ApiError(503, "the server is shutting down");
    case State::dead: throw ApiError(503, "the engine has failed; the server is shutting down");
  }
}

void Service::post_completions(const std::shared_ptr<Exchange>& exchange) {
  generate(Api::completions, exchange);
}

void Service::post_chat(const std::shared_ptr<Exchange>& exchange) {
  generate(Api::chat, exchange);
}

void Service::post_embeddings(const std::shared_ptr<Exchange>& exchange) {
  generate(Api::embeddings, exchange);
}

// Refuses before the body is read if there is no room, which costs nothing.
void Service::check_room(size_t num_prompts, std::optional<size_t> key) const {
  const int64_t most = options_.max_requests;
  if (std::ssize(jobs_) + static_cast<int64_t>(num_prompts) > most) {
    throw ApiError(429,
                   concat("the server has ", jobs_.size(), " requests, and takes ", most,
                          " at once; try again"),
                   {}, "overloaded");
  }
  if (!key || options_.keys[*key].max_requests == 0) return;
  const auto found = requests_of_key_.find(*key);
  const int64_t num_now = found == requests_of_key_.end() ? 0 : found->second;
  if (num_now >= options_.keys[*key].max_requests) {
    throw ApiError(429,
                   concat("this API key has ", num_now,
                          " requests in progress, the most it may have; try again"),
                   {}, "rate_limit_exceeded");
  }
}

void Service::compile(GenerationRequest& request) {
  if (request.constraint) use_constraint(request, constraints_.compile(*request.constraint));
}

// Large bodies are read, and constraints compiled, where they hold up nobody.
void Service::generate(Api api, const std::shared_ptr<Exchange>& exchange) {
  check_ready();
  check_room(1, find_key(options_.keys, exchange->request().authorization));
  const Clock::time_point arrival = Clock::now();
  const std::string& body = exchange->request().body;
  if (body.size() > kLargeBody) {
    return read_elsewhere(exchange, arrival, [this, api, &body] {
      GenerationRequest made = read_generation(api, body, *model_);
      compile(made);
      return made;
    });
  }
  GenerationRequest made = read_generation(api, body, *model_);
  if (!made.constraint || constraints_.find(made.constraint->spec)) {
    compile(made);
    return admit(std::move(made), exchange, arrival);
  }
  read_elsewhere(exchange, arrival, [this, made = std::move(made)]() mutable {
    compile(made);
    return std::move(made);
  });
}

// Admits the request that `read` returns on another thread.
void Service::read_elsewhere(const std::shared_ptr<Exchange>& exchange, Clock::time_point arrival,
                             std::function<GenerationRequest()> read) {
  const auto task = [this, exchange, arrival, read = std::move(read)] {
    try {
      auto made = std::make_shared<GenerationRequest>(read());
      links_.post([this, made, exchange, arrival] {
        try {
          check_ready();
          admit(std::move(*made), exchange, arrival);
        } catch (const std::exception& error) {
          refuse(exchange, error);
        }
      });
    } catch (...) {
      links_.post([this, exchange, caught = std::current_exception()] {
        try {
          std::rethrow_exception(caught);
        } catch (const std::exception& error) {
          refuse(exchange, error);
        }
      });
    }
  };
  if (!reader_.post(task)) {
    throw ApiError(429, "too many requests wait to be read; try again", {}, "overloaded");
  }
}

void Service::admit(GenerationRequest request, const std::shared_ptr<Exchange>& exchange,
                    Clock::time_point arrival) {
  if (!exchange->is_open()) return;
  const size_t num_prompts = request.prompts.size();
  if (static_cast<int64_t>(num_prompts) > options_.max_requests) {
    throw ApiError(400,
                   concat("there are ", num_prompts, " prompts; this server takes ",
                          options_.max_requests, " at once"),
                   request.api == Api::embeddings ? "input" : "prompt");
  }
  const auto key = find_key(options_.keys, exchange->request().authorization);
  check_room(num_prompts, key);
  if (!request.ignored.empty() && options_.log) {
    options_.log(log_line("ignored_fields", {{"fields", request.ignored}}));
  }
  std::vector<Request> prompts = request.prompts;
  const std::string kind = request.api == Api::chat         ? "chatcmpl-"
                           : request.api == Api::embeddings ? "embd-"
                                                            : "cmpl-";
  std::string id = concat(kind, id_stem_, "-", ++last_request_);
  auto job = std::make_shared<Job>(
      Job{.exchange = exchange,
          .answer = Answer(*model_, std::move(request), std::move(id), unix_seconds()),
          .key = key,
          .route = exchange->request().path,
          .arrival = arrival,
          .num_tickets = num_prompts});
  if (options_.logs_prompts) job->prompt = exchange->request().body;
  if (key) ++requests_of_key_[*key];
  for (size_t i = 0; i < num_prompts; ++i) {
    jobs_.emplace(++last_ticket_, std::pair(job, i));
    links_.submit(last_ticket_, std::move(prompts[i]));
  }
  exchange->on_closed([this, job] {
    metrics_.add_lost_client();
    job->is_over = true;
    job->finish = FinishReason::cancelled;
    cancel_job(*job);
  });
}

void Service::cancel_job(const Job& job) {
  for (const auto& [ticket, entry] : jobs_) {
    if (entry.first.get() == &job) links_.cancel(ticket);
  }
}

void Service::cancel_all() {
  for (const auto& [ticket, entry] : jobs_) links_.cancel(ticket);
}

void Service::deliver(std::vector<Delivery> news) {
  for (Delivery& one : news) deliver_one(one);
}

void Service::note_times(Job& job, const Delivery& news) {
  const SequenceOutput& output = news.output;
  if (output.num_prompt_tokens > 0) {
    job.times.num_prompt_tokens += output.num_prompt_tokens;
    if (output.start_time != Clock::time_point{} && !job.times.has_started) {
      job.times.queue_s = seconds_between(job.arrival, output.start_time);
      job.times.prefill_s = seconds_between(output.start_time, news.time);
    }
  }
  if (output.tokens.empty()) return;
  if (!job.times.has_started) {
    job.times.has_started = true;
    job.first_token = news.time;
    metrics_.add_first_token(seconds_between(job.arrival, news.time));
  }
  job.times.num_generated_tokens += std::ssize(output.tokens);
  job.times.decode_s = seconds_between(job.first_token, news.time);
  const int64_t sequence = static_cast<int64_t>(news.ticket) * engine::kMaxOutputs + output.index;
  const auto [place, is_first] = job.last_tokens.try_emplace(sequence, news.time);
  if (!is_first) metrics_.add_inter_token(seconds_between(place->second, news.time));
  place->second = news.time;
}

void Service::deliver_one(Delivery& news) {
  const auto found = jobs_.find(news.ticket);
  if (found == jobs_.end()) return;
  const std::shared_ptr<Job> job = found->second.first;
  const size_t prompt = found->second.second;
  SequenceOutput& output = news.output;
  note_times(*job, news);
  if (!job->is_over && output.finish == FinishReason::error) {
    fail_job(*job, output.error);
  } else if (!job->is_over) {
    const bool is_streamed = job->answer.request().is_streamed;
    std::string events;
    if (is_streamed && !job->is_streaming) {
      job->is_streaming = true;
      HttpResponse head{.type = "text/event-stream", .headers = {{"Cache-Control", "no-store"}}};
      metrics_.add_response(200);
      add_cors(job->exchange->request(), head);
      job->exchange->begin_stream(std::move(head));
      events = job->answer.begin_events();
    }
    events += job->answer.take(prompt, output);
    if (output.finish != FinishReason::none) job->finish = output.finish;
    if (is_streamed && job->answer.is_done()) events += job->answer.end_events();
    if (!events.empty()) job->exchange->write(events);
    if (job->answer.is_done() && !job->is_over) finish_job(*job);
  }
  if (!news.is_last) return;
  jobs_.erase(found);
  if (--job->num_tickets == 0) close_job(*job);
}

// The engine has finished with all of it.
void Service::close_job(Job& job) {
  if (job.key) --requests_of_key_[*job.key];
  job.times.total_s = seconds_between(job.arrival, Clock::now());
  metrics_.add_finished(finish_name(job.finish), job.times);
  log_job(job, job.finish == FinishReason::error ? 500 : 200);
}

void Service::finish_job(Job& job) {
  job.is_over = true;
  if (job.is_streaming) {
    job.exchange->end_stream();
  } else {
    respond(job.exchange, {.body = job.answer.body()});
  }
}

// Before a stream has begun the status says it; after that an event does.
void Service::fail_job(Job& job, const std::string& why) {
  job.is_over = true;
  job.finish = FinishReason::error;
  cancel_job(job);
  if (!job.is_streaming) return respond(job.exchange, error_response(500, why));
  job.exchange->write("data: " + error_json(500, why) + "\n\ndata: [DONE]\n\n");
  job.exchange->end_stream();
}

void Service::log_job(const Job& job, int status) const {
  if (!options_.log || (!options_.logs_success && status < 400)) return;
  Json fields = {{"id", job.answer.id()},
                 {"path", job.route},
                 {"status", status},
                 {"client", job.exchange->request().peer},
                 {"finish", std::string(finish_name(job.finish))},
                 {"prompt_tokens", job.answer.num_prompt_tokens()},
                 {"generated_tokens", job.times.num_generated_tokens},
                 {"total_ms", milliseconds(job.times.total_s)}};
  if (job.times.has_started) {
    fields["first_token_ms"] = milliseconds(seconds_between(job.arrival, job.first_token));
  }
  if (options_.logs_prompts) fields["request"] = job.prompt;
  options_.log(log_line("request", std::move(fields)));
}

}  // namespace tessera::server
