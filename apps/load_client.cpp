// Sockets and poll: a client whose own cost is small beside what it measures.
// SPDX-License-Identifier: MIT
#include "apps/load_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
  int family = 0;
};

Address resolve(const LoadTarget& target) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found);
  if (problem != 0) {
    fail(concat("--url: the host ", in_quotes(target.host),
                " was not found: ", gai_strerror(problem)));
  }
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  address.family = found->ai_family;
  freeaddrinfo(found);
  return address;
}

// One request on its own connection.
class Call {
 public:
  Call(const Address& address, std::string text, double now, double deadline)
      : output_(std::move(text)), deadline_(deadline) {
    result_.start_s = now;
    socket_ = socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const auto* place = reinterpret_cast<const sockaddr*>(&address.bytes);
    const bool is_begun =
        socket_ >= 0 && (connect(socket_, place, address.size) == 0 || errno == EINPROGRESS);
    if (!is_begun) fail_with(now, std::strerror(errno));
  }
  ~Call() {
    if (socket_ >= 0) close(socket_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  pollfd wanted() const {
    return {socket_, static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }
  bool is_over() const { return is_over_; }
  LoadResult take_result() { return std::move(result_); }

  void advance(short ready, double now) {
    if (now > deadline_) return fail_with(now, "it took too long");
    if ((ready & POLLOUT) != 0 && !output_.empty()) send_some(now);
    if (!is_over_ && (ready & (POLLIN | POLLHUP | POLLERR)) != 0) read_some(now);
  }

 private:
  void fail_with(double now, std::string why) {
    result_.error = std::move(why);
    finish(now);
  }

  void finish(double now) {
    result_.total_s = now - result_.start_s;
    is_over_ = true;
  }

  void send_some(double now) {
    const ssize_t num = send(socket_, output_.data(), output_.size(), MSG_NOSIGNAL);
    if (num > 0) output_.erase(0, static_cast<size_t>(num));
    if (num < 0 && errno != EAGAIN && errno != ENOTCONN) fail_with(now, std::strerror(errno));
  }

  void read_some(double now) {
    std::array<char, 65536> bytes;
    const ssize_t num = recv(socket_, bytes.data(), bytes.size(), 0);
    if (num < 0 && errno == EAGAIN) return;
    if (num < 0) return fail_with(now, std::strerror(errno));
    if (num == 0) return end_of_input(now);
    const std::string_view got(bytes.data(), static_cast<size_t>(num));
    if (has_head_) return take_body(got, now);
    head_ += got;
    const size_t end = head_.find("\r\n\r\n");
    if (end == std::string::npos) return;
    has_head_ = true;
    const size_t space = head_.find(' ');
    std::from_chars(head_.data() + space + 1, head_.data() + end, result_.status);
    std::string lower = head_.substr(0, end);
    std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
      return static_cast<char>(std::tolower(letter));
    });
    reader_ = EventReader(lower.find("transfer-encoding: chunked") != std::string::npos);
    take_body(head_.substr(end + 4), now);
  }

  void take_body(std::string_view bytes, double now) {
    if (result_.status != 200) return;  // the end of the connection ends it
    for (const std::string& event : reader_.take(bytes)) {
      if (event == "[DONE]") return finish(now);
      take_event(event, now);
      if (is_over_) return;
    }
    if (reader_.is_done()) end_of_input(now);
  }

  void take_event(const std::string& event, double now) {
    const nlohmann::json parsed = nlohmann::json::parse(event, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return fail_with(now, "an event is not JSON");
    if (parsed.contains("error")) return fail_with(now, shown(parsed["error"].dump(), 200));
    if (parsed.contains("usage") && parsed["usage"].is_object()) {
      result_.num_tokens = parsed["usage"].value("completion_tokens", int64_t{0});
      result_.num_prompt_tokens = parsed["usage"].value("prompt_tokens", int64_t{0});
    }
    const bool has_text = parsed.contains("choices") && !parsed["choices"].empty();
    if (!has_text) return;
    if (last_ == 0) {
      result_.first_s = now - result_.start_s;
    } else {
      result_.gaps_s.push_back(now - last_);
    }
    last_ = now;
  }

  void end_of_input(double now) {
    if (result_.status == 200) return fail_with(now, "the stream ended before [DONE]");
    fail_with(now, result_.status == 0 ? std::string("the connection ended without an answer")
                                       : concat("HTTP ", result_.status));
  }

  int socket_ = -1;
  std::string output_;
  std::string head_;
  bool has_head_ = false;
  EventReader reader_{false};
  double last_ = 0;
  double deadline_;
  bool is_over_ = false;
  LoadResult result_;
};

std::string request_text(const LoadTarget& target, const std::string& api_key,
                         const std::string& body) {
  std::string text =
      concat("POST ", target.prefix, "/v1/completions HTTP/1.1\r\nHost: ", target.host, ":",
             target.port, "\r\nContent-Type: application/json\r\nConnection: close\r\n");
  if (!api_key.empty()) text += concat("Authorization: Bearer ", api_key, "\r\n");
  return text + concat("Content-Length: ", body.size(), "\r\n\r\n", body);
}

}  // namespace

LoadTarget parse_target(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    fail(concat("--url is ", in_quotes(url), "; give an address such as http://127.0.0.1:8000"));
  };
  if (!url.starts_with(kScheme)) refuse();
  std::string rest = url.substr(kScheme.size());
  LoadTarget target;
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) target.prefix = rest.substr(slash);
  while (target.prefix.ends_with('/')) target.prefix.pop_back();
  if (target.prefix.ends_with("/v1")) target.prefix.resize(target.prefix.size() - 3);
  rest.resize(std::min(slash, rest.size()));
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && !rest.ends_with(']');
  if (has_port) target.port = rest.substr(colon + 1);
  target.host = has_port ? rest.substr(0, colon) : rest;
  if (target.host.starts_with('[') && target.host.ends_with(']')) {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  const bool is_number =
      !target.port.empty() && target.port.find_first_not_of("0123456789") == std::string::npos;
  if (target.host.empty() || !is_number) refuse();
  return target;
}

void EventReader::unpack() {
  while (!is_done_) {
    const size_t end = packed_.find("\r\n");
    if (end == std::string::npos) return;
    size_t size = 0;
    std::from_chars(packed_.data(), packed_.data() + end, size, 16);
    if (packed_.size() < end + 2 + size + 2) return;
    text_.append(packed_, end + 2, size);
    packed_.erase(0, end + 2 + size + 2);
    is_done_ = size == 0;
  }
}

std::vector<std::string> EventReader::take(std::string_view bytes) {
  constexpr std::string_view kPrefix = "data: ";
  if (is_chunked_) {
    packed_ += bytes;
    unpack();
  } else {
    text_ += bytes;
  }
  std::vector<std::string> events;
  size_t begin = 0;
  for (size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', begin)) {
    std::string line = text_.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with(kPrefix)) events.push_back(line.substr(kPrefix.size()));
    begin = end + 1;
  }
  text_.erase(0, begin);
  return events;
}

std::vector<LoadResult> run_load(const LoadTarget& target, const std::string& api_key,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 double timeout_s) {
  const Address address = resolve(target);
  const Clock::time_point began = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  std::vector<LoadResult> results(requests.size());
  std::vector<std::pair<size_t, std::unique_ptr<Call>>> calls;
  size_t next = 0;
  while (next < requests.size() || !calls.empty()) {
    double now = seconds();
    while (next < requests.size() && std::ssize(calls) < concurrency &&
           requests[next].start_s <= now) {
      const std::string text = request_text(target, api_key, requests[next].body);
      calls.emplace_back(next, std::make_unique<Call>(address, text, now, now + timeout_s));
      ++next;
    }
    std::vector<pollfd> waits;
    for (const auto& [index, call] : calls) waits.push_back(call->wanted());
    const bool has_room = next < requests.size() && std::ssize(calls) < concurrency;
    const double pause = has_room ? std::clamp(requests[next].start_s - now, 0.0, 0.1) : 0.1;
    poll(waits.data(), waits.size(), static_cast<int>(pause * 1e3));
    now = seconds();
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!calls[i].second->is_over()) calls[i].second->advance(waits[i].revents, now);
    }
    std::erase_if(calls, [&](auto& entry) {
      if (!entry.second->is_over()) return false;
      results[entry.first] = entry.second->take_result();
      return true;
    });
  }
  return results;
}

}  // namespace tessera::apps
