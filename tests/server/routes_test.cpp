// The table of routes against its description, and the responses without a model.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>

#include "server/assets.h"
#include "server/json_fields.h"
#include "server/service.h"

namespace tessera::server {
namespace {

class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}
  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { answer = std::move(response); }
  void begin_stream(HttpResponse head) override { answer = std::move(head); }
  void write(std::string_view text) override { answer.body += text; }
  void end_stream() override {}
  void abort() override {}
  bool is_open() const override { return true; }
  void on_closed(std::function<void()>) override {}

  HttpResponse answer = {.status = 0};

 private:
  HttpRequest request_;
};

HttpResponse ask(Service& service, HttpRequest request) {
  const auto exchange = std::make_shared<FakeExchange>(std::move(request));
  service.handle(exchange);
  return exchange->answer;
}

ServiceLinks no_links() {
  return {.post = [](std::function<void()> task) { task(); },
          .submit = [](Ticket, Request) {},
          .cancel = [](Ticket) {},
          .engine_metrics = [] { return EngineMetrics{}; },
          .num_connections = [] { return int64_t{0}; }};
}

TEST(Routes, AreThoseOfTheDescription) {
  std::set<std::string> described, served;
  const Json paths = Json::parse(openapi_json())["paths"];
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      const bool is_public = operation.contains("security") && operation["security"].empty();
      described.insert((is_public ? "public " : "") + method + " " + path);
    }
  }
  for (const Service::Route& route : Service::routes()) {
    served.insert(std::string(route.is_public ? "public " : "") +
                  (route.method == "GET" ? "get " : "post ") + std::string(route.path));
  }
  EXPECT_EQ(described, served);
}

TEST(Routes, NeedAKeyUnlessTheyArePublic) {
  Service service({.keys = {{.key = "right"}}}, no_links());
  for (const Service::Route& route : Service::routes()) {
    HttpRequest request{.method = std::string(route.method), .path = std::string(route.path)};
    EXPECT_EQ(ask(service, request).status == 401, !route.is_public) << route.path;
    request.authorization = "Bearer right";
    EXPECT_NE(ask(service, request).status, 401) << route.path;
  }
}

TEST(Routes, SayThatTheModelIsBeingLoaded) {
  Service service({}, no_links());
  service.set_progress(1, 4);
  const HttpResponse health = ask(service, {.method = "GET", .path = "/health"});
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["progress"], 0.25);
  EXPECT_EQ(ask(service, {.method = "POST", .path = "/v1/completions"}).status, 503);
  EXPECT_EQ(ask(service, {.method = "GET", .path = "/metrics"}).status, 200);
}

TEST(Routes, SayThatTheEngineHasFailed) {
  Service service({}, no_links());
  service.set_dead("a kernel faulted");
  const HttpResponse health = ask(service, {.method = "GET", .path = "/health"});
  EXPECT_EQ(health.status, 503);
  EXPECT_TRUE(health.closes);
  EXPECT_EQ(Json::parse(health.body)["status"], "failed");
}

}  // namespace
}  // namespace tessera::server
