// A connection's state: reading a request, waiting for its answer, writing it.
// SPDX-License-Identifier: MIT
#include "server/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "server/api_error.h"

namespace tessera::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;
using Parser = http::request_parser<http::string_body>;

constexpr size_t kReadBytes = 16 << 10;
constexpr double kLingerSeconds = 2;  // for the client to read an answer given before its request
                                      // had arrived
constexpr size_t kPipelinedBytes = 64 << 10;

class HttpConnection;

// The answer to one request. Keeps the connection alive, and is not used by it any more once the
// answer is complete or the connection closed.
class HttpExchange final : public Exchange, public std::enable_shared_from_this<HttpExchange> {
 public:
  HttpExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request, bool is_http10)
      : connection_(std::move(connection)), request_(std::move(request)), is_http10_(is_http10) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head) override;
  void write(std::string_view text) override;
  void end_stream() override;
  void abort() override;
  bool is_open() const override { return connection_ != nullptr; }
  void on_closed(std::function<void()> closed) override { closed_ = std::move(closed); }

  // The connection is closed.
  void lose() {
    connection_ = nullptr;
    if (auto closed = std::exchange(closed_, nullptr)) closed();
  }

 private:
  void finish(bool is_kept);

  std::shared_ptr<HttpConnection> connection_;
  HttpRequest request_;
  bool is_http10_;
  bool is_kept_ = true;
  std::function<void()> closed_;
};

class HttpConnection final : public Connection,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(asio::io_context& io, std::unique_ptr<Transport> transport, std::string peer,
                 const ConnectionSettings& settings)
      : settings_(settings), transport_(std::move(transport)), peer_(std::move(peer)), timer_(io) {
    reset_parser();
  }

  void start() override {
    limit_time(settings_.limits.request_seconds);
    watch_time();
    transport_->start([self = shared_from_this()](bool is_ok, size_t) {
      if (!is_ok) return self->close();
      self->limit_time(self->settings_.limits.idle_seconds);
      self->read();
    });
  }

  void turn_away(const std::string& why) override {
    limit_time(kLingerSeconds);
    watch_time();
    transport_->start([self = shared_from_this(), why](bool is_ok, size_t) {
      is_ok ? self->refuse(503, why) : self->close();
    });
  }

  void close() override {
    if (std::exchange(is_closed_, true)) return;
    const auto self = shared_from_this();
    transport_->close();
    timer_.cancel();
    if (auto exchange = std::exchange(exchange_, nullptr)) exchange->lose();
    settings_.closed(this);
  }

  void close_when_idle() override {
    is_draining_ = true;
    if (is_idle()) return close();
    // A client that has just connected is about to send its request, and should get an answer.
    if (!has_begun_ && !exchange_ && !is_writing_) limit_time(kLingerSeconds);
  }

  bool keeps_alive() const { return is_keep_alive_ && !is_draining_; }

  void send(std::string_view text) {
    if (is_closed_) return;
    if (!is_writing_) text.remove_prefix(transport_->write_now(text.data(), text.size()));
    if (text.empty()) {
      if (is_ending_) end();
      return;
    }
    pending_ += text;
    const auto limit = static_cast<size_t>(settings_.limits.stream_bytes);
    // A whole answer may be longer than what a stream may owe.
    if (exchange_ && is_streaming_ && pending_.size() + written_.size() > limit) return close();
    if (!is_writing_) write();
  }

  void set_streaming() { is_streaming_ = true; }

  void finish_exchange(bool is_kept) {
    exchange_ = nullptr;
    is_streaming_ = false;
    has_answered_ = true;
    if (!is_kept) {
      is_ending_ = true;
      if (!is_writing_) end();
      return;
    }
    reset_parser();
    if (is_draining_ && is_idle()) return close();
    limit_time(settings_.limits.idle_seconds);
    if (input_.empty()) return read();
    // Not from within the handler of the request before, which would recurse.
    asio::post(timer_.get_executor(), [self = shared_from_this()] {
      if (!self->is_closed_ && !self->exchange_) self->parse();
    });
  }

 private:
  // Between two requests: the last one is answered, and nothing of another has arrived.
  bool is_idle() const {
    return has_answered_ && !exchange_ && !is_writing_ && !has_begun_ && input_.empty();
  }

  void reset_parser() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<uint32_t>(settings_.limits.header_bytes));
    parser_->body_limit(static_cast<uint64_t>(settings_.limits.body_bytes));
    has_begun_ = has_continued_ = false;
  }

  void limit_time(double seconds) {
    deadline_ = Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    if (deadline_ < timer_.expiry()) watch_time();
  }

  void watch_time() {
    timer_.expires_at(deadline_);
    wait_timer();
  }

  void wait_timer() {
    timer_.async_wait([self = shared_from_this()](boost::system::error_code error) {
      if (self->is_closed_ || error) return;
      if (Clock::now() < self->deadline_) return self->watch_time();
      self->overrun();
    });
  }

  // The deadline has passed. An exchange that waits for its answer has all the time it needs.
  void overrun() {
    if (exchange_ && !is_writing_) {
      limit_time(settings_.limits.idle_seconds);
      return watch_time();
    }
    if (has_begun_ && !is_ending_ && !is_writing_) {
      refuse(408, "the request did not arrive in time");
      return watch_time();
    }
    close();
  }

  // Also reads while an answer is being made: that is how a client that leaves is noticed.
  void read() {
    if (is_reading_ || is_closed_) return;
    if (exchange_ && input_.size() >= kPipelinedBytes) return;
    is_reading_ = true;
    transport_->read_some(bytes_.data(), bytes_.size(),
                          [self = shared_from_this()](bool is_ok, size_t num) {
                            self->is_reading_ = false;
                            self->take(is_ok, num);
                          });
  }

  void take(bool is_ok, size_t num) {
    if (is_closed_) return;
    if (!is_ok) return close();
    if (is_ending_) return read();  // what still arrives is dropped
    input_.append(bytes_.data(), num);
    if (exchange_) return read();
    parse();
  }

  void parse() {
    if (!has_begun_ && !input_.empty()) {
      has_begun_ = true;
      limit_time(settings_.limits.request_seconds);
    }
    boost::system::error_code error;
    while (!input_.empty() && !parser_->is_done()) {
      const size_t used = parser_->put(asio::buffer(input_), error);
      input_.erase(0, used);
      if (error || used == 0) break;
    }
    if (error == http::error::need_more) error = {};
    const auto header_bytes = static_cast<size_t>(settings_.limits.header_bytes);
    if (error == http::error::header_limit ||
        (!parser_->is_header_done() && input_.size() > header_bytes) || has_many_headers()) {
      return refuse(431, "the headers are too large; at most " + std::to_string(header_bytes) +
                             " bytes and " + std::to_string(settings_.limits.headers) +
                             " headers are read");
    }
    if (error == http::error::body_limit) {
      return refuse(413, "the body is larger than " + std::to_string(settings_.limits.body_bytes) +
                             " bytes, the most that this server reads");
    }
    if (error) return refuse(400, "this is not an HTTP request: " + error.message());
    if (parser_->is_done()) return dispatch();
    if (parser_->is_header_done() && !has_continued_ && wants_continue()) {
      has_continued_ = true;
      send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    read();
  }

  bool has_many_headers() const {
    const auto& fields = parser_->get();
    return std::distance(fields.begin(), fields.end()) > settings_.limits.headers;
  }

  bool wants_continue() const {
    return parser_->get().version() >= 11 &&
           boost::beast::iequals(parser_->get()[http::field::expect], "100-continue");
  }

  std::string field(http::field name) const { return std::string(parser_->get()[name]); }

  void dispatch() {
    auto& message = parser_->get();
    HttpRequest request;
    request.method = std::string(message.method_string());
    const std::string target(message.target());
    request.path = target.substr(0, target.find('?'));
    request.authorization = field(http::field::authorization);
    request.content_type = field(http::field::content_type);
    request.host = field(http::field::host);
    request.origin = field(http::field::origin);
    request.request_id = std::string(message["X-Request-Id"]);
    request.body = std::move(message.body());
    request.peer = peer_;
    is_keep_alive_ = message.keep_alive();
    exchange_ = std::make_shared<HttpExchange>(shared_from_this(), std::move(request),
                                               message.version() < 11);
    const std::shared_ptr<HttpExchange> exchange = exchange_;
    read();
    settings_.handler(exchange);
  }

  // Answers bytes that are no request, and ends the connection.
  void refuse(int status, const std::string& why) {
    HttpResponse response = error_response(status, why);
    is_ending_ = true;
    limit_time(kLingerSeconds);
    send(response_head(response, std::ssize(response.body), false) + response.body);
    input_.clear();
    read();
  }

  void write() {
    if (is_closed_) return;
    if (written_.empty()) {
      written_ = std::exchange(pending_, {});
      num_written_ = 0;
    }
    is_writing_ = !written_.empty();
    if (!is_writing_) {
      if (is_ending_) return end();
      if (is_draining_ && is_idle()) close();
      return;
    }
    if (!is_ending_) limit_time(settings_.limits.write_seconds);
    transport_->write_some(written_.data() + num_written_, written_.size() - num_written_,
                           [self = shared_from_this()](bool is_ok, size_t num) {
                             if (!is_ok) return self->close();
                             self->num_written_ += num;
                             if (self->num_written_ == self->written_.size()) {
                               self->written_.clear();
                             }
                             self->write();
                           });
  }

  // Everything was written. Waits a moment for the client to read it and to close.
  void end() {
    transport_->end_sending();
    limit_time(kLingerSeconds);
    read();
  }

  const ConnectionSettings& settings_;
  std::unique_ptr<Transport> transport_;
  std::string peer_;
  asio::steady_timer timer_;
  Clock::time_point deadline_ = {};

  std::array<char, kReadBytes> bytes_ = {};
  std::string input_;  // arrived and not yet parsed
  std::optional<Parser> parser_;
  std::shared_ptr<HttpExchange> exchange_;
  std::string written_, pending_;  // being written, and to be written after it
  size_t num_written_ = 0;
  bool has_begun_ = false;  // bytes of a request have arrived
  bool has_continued_ = false;
  bool has_answered_ = false;  // at least one request
  bool is_keep_alive_ = true;
  bool is_streaming_ = false;
  bool is_draining_ = false;
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_ending_ = false;  // what is pending is written, and nothing more
  bool is_closed_ = false;
};

void HttpExchange::finish(bool is_kept) {
  closed_ = nullptr;
  const auto connection = std::exchange(connection_, nullptr);
  connection->finish_exchange(is_kept);
}

void HttpExchange::respond(HttpResponse response) {
  if (!connection_) return;
  const bool is_kept = connection_->keeps_alive() && !response.closes;
  std::string text = response_head(response, std::ssize(response.body), is_kept);
  if (request_.method != "HEAD") text += response.body;
  connection_->send(text);
  if (connection_) finish(is_kept);
}

// HTTP/1.0 has no chunks: the end of the connection is the end of the stream.
void HttpExchange::begin_stream(HttpResponse head) {
  if (!connection_) return;
  is_kept_ = connection_->keeps_alive() && !is_http10_;
  connection_->set_streaming();
  std::string text = response_head(head, -1, is_kept_);
  if (is_http10_) {
    const std::string_view chunked = "Transfer-Encoding: chunked\r\n";
    text.erase(text.find(chunked), chunked.size());
  }
  connection_->send(text);
}

void HttpExchange::write(std::string_view text) {
  if (!connection_ || text.empty()) return;
  is_http10_ ? connection_->send(text) : connection_->send(chunk_of(text));
}

void HttpExchange::end_stream() {
  if (!connection_) return;
  if (!is_http10_) connection_->send("0\r\n\r\n");
  if (connection_) finish(is_kept_);
}

void HttpExchange::abort() {
  if (!connection_) return;
  closed_ = nullptr;
  connection_->close();
}

}  // namespace

std::shared_ptr<Connection> make_connection(asio::io_context& io,
                                            std::unique_ptr<Transport> transport, std::string peer,
                                            const ConnectionSettings& settings) {
  return std::make_shared<HttpConnection>(io, std::move(transport), std::move(peer), settings);
}

}  // namespace tessera::server
