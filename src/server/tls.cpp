// TLS by OpenSSL.
// SPDX-License-Identifier: MIT
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

#include "core/text.h"
#include "server/transport.h"
#include "tessera/core/error.h"

namespace tessera::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context& context)
      : stream_(std::move(socket), context) {}

  void start(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](error_code error) { done(!error, 0); });
  }
  void read_some(char* to, size_t size, Done done) override {
    stream_.async_read_some(
        asio::buffer(to, size),
        [done = std::move(done)](error_code error, size_t num) { done(!error, num); });
  }
  void write_some(const char* from, size_t size, Done done) override {
    stream_.async_write_some(
        asio::buffer(from, size),
        [done = std::move(done)](error_code error, size_t num) { done(!error, num); });
  }
  size_t write_now(const char*, size_t) override {
    return 0;
  }  // a record may need to be read first
  void end_sending() override {
    error_code ignored;
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

struct Tls::Impl {
  asio::ssl::context context{asio::ssl::context::tls_server};
};

Tls::Tls(const std::string& cert_file, const std::string& key_file)
    : impl_(std::make_unique<Impl>()) {
  asio::ssl::context& context = impl_->context;
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  error_code error;
  context.use_certificate_chain_file(cert_file, error);
  if (error) {
    fail(concat("--tls-cert: ", in_quotes(cert_file),
                " is no certificate in PEM: ", error.message()));
  }
  context.use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) {
    fail(concat("--tls-key: ", in_quotes(key_file),
                " is no private key in PEM, or not that of the certificate: ", error.message()));
  }
}

Tls::~Tls() = default;

std::unique_ptr<Transport> Tls::wrap(tcp::socket socket) {
  return std::make_unique<TlsTransport>(std::move(socket), impl_->context);
}

}  // namespace tessera::server
