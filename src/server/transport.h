// The bytes of one connection, plain or encrypted.
// SPDX-License-Identifier: MIT
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace tessera::server {

// At most one read and one write at a time. `done` is always called, with false after close() or
// when the peer has gone.
class Transport {
 public:
  using Done = std::function<void(bool is_ok, size_t num_bytes)>;

  virtual ~Transport() = default;
  virtual void start(Done done) = 0;  // the handshake, if there is one
  virtual void read_some(char* to, size_t size, Done done) = 0;
  virtual void write_some(const char* from, size_t size, Done done) = 0;
  // Writes what the system takes at once and returns how many bytes that is; 0 also if the peer has
  // gone, which write_some then tells. Not while a write is under way.
  virtual size_t write_now(const char* from, size_t size) = 0;
  virtual void end_sending() = 0;  // the peer sees the end; reading goes on
  virtual void close() = 0;
};

std::unique_ptr<Transport> make_plain_transport(boost::asio::ip::tcp::socket socket);

// Encrypts connections with one certificate.
class Tls {
 public:
  // Refuses files that cannot be read or do not belong together. TLS 1.2 and newer.
  Tls(const std::string& cert_file, const std::string& key_file);
  ~Tls();
  std::unique_ptr<Transport> wrap(boost::asio::ip::tcp::socket socket);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::server
