// One connection: requests parsed within limits, answers written without blocking.
// SPDX-License-Identifier: MIT
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/transport.h"

namespace tessera::server {

class Connection {
 public:
  virtual ~Connection() = default;
  virtual void start() = 0;
  virtual void turn_away(const std::string& why) = 0;  // instead of start: 503, and the end
  virtual void close() = 0;
  // At once if it is between two requests; else after the one in progress, or the first one of a
  // client that has just connected.
  virtual void close_when_idle() = 0;
};

struct ConnectionSettings {
  HttpLimits limits;
  Handler handler;
  std::function<void(const Connection*)> closed;  // called once
};

// `settings` must outlive the connection.
std::shared_ptr<Connection> make_connection(boost::asio::io_context& io,
                                            std::unique_ptr<Transport> transport, std::string peer,
                                            const ConnectionSettings& settings);

}  // namespace tessera::server
