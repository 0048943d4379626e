// The listening socket, the connections, timers and signals: everything on the I/O thread.
// SPDX-License-Identifier: MIT
#include <sys/resource.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <utility>

#include "core/text.h"
#include "server/connection.h"
#include "server/http.h"
#include "tessera/core/error.h"

namespace tessera::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int64_t kTurnedAway = 256;  // connections beyond the limit that are told so
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}

  void start(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done(true, 0); });
  }
  void read_some(char* to, size_t size, Done done) override {
    socket_.async_read_some(
        asio::buffer(to, size),
        [done = std::move(done)](error_code error, size_t num) { done(!error, num); });
  }
  void write_some(const char* from, size_t size, Done done) override {
    socket_.async_write_some(
        asio::buffer(from, size),
        [done = std::move(done)](error_code error, size_t num) { done(!error, num); });
  }
  // Without the reactor, which takes as long as the write itself.
  size_t write_now(const char* from, size_t size) override {
    error_code error;
    if (!socket_.non_blocking()) socket_.non_blocking(true, error);
    if (error) return 0;
    const size_t num = socket_.write_some(asio::buffer(from, size), error);
    return error ? 0 : num;
  }
  void end_sending() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

// Each connection is a descriptor, and the usual soft limit of 1,024 is fewer than are allowed.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::unique_ptr<Transport> make_plain_transport(tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

struct HttpServer::Impl {
  Impl(const HttpOptions& options, Handler handler)
      : limits(options.limits),
        settings{.limits = options.limits,
                 .handler = std::move(handler),
                 .closed = [this](const Connection* one) { connections.erase(one); }} {
    if (!options.tls_cert.empty()) tls.emplace(options.tls_cert, options.tls_key);
    listen(options);
  }

  void listen(const HttpOptions& options) {
    error_code error;
    const asio::ip::address address = asio::ip::make_address(
        options.host == "localhost" ? std::string("127.0.0.1") : options.host, error);
    if (error) {
      fail(concat("--host is ", in_quotes(options.host),
                  "; give an address such as 127.0.0.1, 0.0.0.0 or ::"));
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      fail(concat("cannot listen on ", options.host, " port ", options.port, ": ", error.message(),
                  "; give another --port, or 0 for any free one"));
    }
    port = acceptor.local_endpoint().port();
  }

  void accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return pause_accepting();  // no descriptor is left, usually
      admit(std::move(socket));
      accept();
    });
  }

  void pause_accepting() {
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](error_code error) {
      if (!error) accept();
    });
  }

  void admit(tcp::socket socket) {
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // it has left already
    socket.set_option(tcp::no_delay(true), error);
    const int64_t num_others = std::ssize(connections);
    if (num_others >= limits.connections + kTurnedAway) return;
    auto transport = tls ? tls->wrap(std::move(socket)) : make_plain_transport(std::move(socket));
    auto connection =
        make_connection(io, std::move(transport), peer.address().to_string(), settings);
    connections.emplace(connection.get(), connection);
    if (num_others < limits.connections) return connection->start();
    connection->turn_away(concat("the server has ", limits.connections,
                                 " connections, the most it takes; try again"));
  }

  void wait_for_signal() {
    signals.async_wait([this](error_code error, int) {
      if (error) return;
      wait_for_signal();
      if (signal_task) signal_task();
    });
  }

  template <class Act>
  void for_each_connection(Act&& act) {
    const auto copy = connections;  // closing a connection erases it
    for (const auto& [key, connection] : copy) act(*connection);
  }

  HttpLimits limits;
  ConnectionSettings settings;
  std::map<const Connection*, std::shared_ptr<Connection>> connections;
  asio::io_context io{1};
  std::optional<Tls> tls;
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  asio::signal_set signals{io};
  std::function<void()> signal_task;
  int port = 0;
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_((raise_descriptor_limit(), std::make_unique<Impl>(options, std::move(handler)))) {}

HttpServer::~HttpServer() {
  impl_->for_each_connection([](Connection& connection) { connection.close(); });
}

int HttpServer::port() const { return impl_->port; }
int64_t HttpServer::num_connections() const { return std::ssize(impl_->connections); }

void HttpServer::run() {
  const auto work = asio::make_work_guard(impl_->io);
  impl_->accept();
  while (true) {
    try {
      impl_->io.run();
      return;
    } catch (const std::exception&) {
      // Memory ran out in one connection's handler; the others go on.
    }
  }
}

void HttpServer::post(std::function<void()> task) { asio::post(impl_->io, std::move(task)); }
void HttpServer::stop() { impl_->io.stop(); }

void HttpServer::after(double seconds, std::function<void()> task) {
  const auto timer = std::make_shared<asio::steady_timer>(impl_->io);
  timer->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds)));
  timer->async_wait([timer, task = std::move(task)](error_code error) {
    if (!error) task();
  });
}

void HttpServer::on_signal(std::function<void()> task) {
  impl_->signal_task = std::move(task);
  impl_->signals.add(SIGINT);
  impl_->signals.add(SIGTERM);
  impl_->wait_for_signal();
}

void HttpServer::begin_drain() {
  impl_->for_each_connection([](Connection& connection) { connection.close_when_idle(); });
}

}  // namespace tessera::server
