// HTTP as the rest of the server sees it: requests in, responses and streams out. Boost is included
// by connection.cpp, http_server.cpp and tls.cpp alone, because it is slow to compile.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::server {

struct HttpRequest {
  std::string method = {};  // "POST"
  std::string path = {};    // without the query
  std::string authorization = {};
  std::string content_type = {};
  std::string host = {};
  std::string origin = {};
  std::string request_id = {};  // the header X-Request-Id
  std::string body = {};
  std::string peer = {};  // the client's address
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  bool closes = false;  // the connection, after this response
};

// One request that waits for its answer: respond once, or begin_stream, any number of writes, and
// end_stream. All calls belong on the I/O thread. Nothing here blocks: what the client does not
// read is kept up to HttpLimits::stream_bytes, and a client that is further behind is cut off.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view text) = 0;
  virtual void end_stream() = 0;
  // Ends the connection at once, so that the client sees a stream that is not complete.
  virtual void abort() = 0;
  virtual bool is_open() const = 0;
  // Called once if the client leaves, or is cut off, before the answer is complete.
  virtual void on_closed(std::function<void()> closed) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

struct HttpLimits {
  int64_t body_bytes = int64_t{8} << 20;
  int64_t header_bytes = int64_t{64} << 10;
  int64_t headers = 256;
  int64_t connections = 4096;
  int64_t stream_bytes = int64_t{1} << 20;  // written and not yet read by the client
  double request_seconds = 30;              // for all of a request to arrive, from its first byte
  double idle_seconds = 75;                 // for the next request on a connection to begin
  double write_seconds = 30;                // without any progress of a write
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8000;            // 0: any free one
  std::string tls_cert = {};  // PEM files; empty: no TLS
  std::string tls_key = {};
  HttpLimits limits = {};
};

// Requests, connections and timers on one thread, the one that calls run().
class HttpServer {
 public:
  // Binds and listens; refuses an address that is taken. Clients may connect from then on, and are
  // answered once run() is called.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  void run();  // until stop(); goes on if a task throws
  int64_t num_connections() const;
  // The following may be called from any thread.
  void post(std::function<void()> task);  // runs it on the I/O thread
  void stop();
  // On the I/O thread only.
  void after(double seconds, std::function<void()> task);
  void on_signal(std::function<void()> task);  // each SIGINT and SIGTERM
  // No connection is kept for a further request. Those that wait for one are closed.
  void begin_drain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "Not Found".
std::string_view status_text(int status);
// Status line and headers, with the empty line. A length of -1 announces chunks.
std::string response_head(const HttpResponse& response, int64_t length, bool is_kept);
// A piece of a body in chunks. Not for an empty text, which would end the body.
std::string chunk_of(std::string_view text);

}  // namespace tessera::server
