// Many streamed requests to a server at once, timed token by token.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::apps {

// http://HOST[:PORT][/PREFIX]
struct LoadTarget {
  std::string host;
  std::string port = "80";
  std::string prefix = {};  // before /v1/completions
};
LoadTarget parse_target(const std::string& url);  // refuses what is not such an address

struct LoadRequest {
  double start_s = 0;  // not before; from the beginning of the load
  std::string body;    // of /v1/completions, streamed
};

struct LoadResult {
  int status = 0;          // of HTTP; 0: there was none
  std::string error = {};  // not empty: it failed
  double start_s = 0;      // when the request was sent, from the beginning of the load
  double first_s = 0;      // from then to the first text
  double total_s = 0;
  int64_t num_prompt_tokens = 0;  // as the server counts them
  int64_t num_tokens = 0;
  std::vector<double> gaps_s = {};  // between two texts
};

// Reads the body of a streamed answer piece by piece: chunks, then lines that begin with "data: ".
class EventReader {
 public:
  explicit EventReader(bool is_chunked) : is_chunked_(is_chunked) {}
  // The events that are complete with these bytes, without "data: ".
  std::vector<std::string> take(std::string_view bytes);
  bool is_done() const { return is_done_; }  // the last chunk was read

 private:
  void unpack();

  bool is_chunked_;
  bool is_done_ = false;
  std::string packed_;  // bytes of chunks that are not complete
  std::string text_;    // of events that are not complete
};

// Sends every request at its time, with at most `concurrency` in progress, on one thread.
// Each gets a connection of its own and at most `timeout_s`. Results are in the order of requests.
std::vector<LoadResult> run_load(const LoadTarget& target, const std::string& api_key,
                                 const std::vector<LoadRequest>& requests, int64_t concurrency,
                                 double timeout_s);

}  // namespace tessera::apps
