// What the next step computes: a pure function of the queues and the free pages.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::engine {

// A sequence that is running or waiting, as the plan sees it; or the beams of one search, which
// step together.
struct PlanEntry {
  int64_t num_known = 0;  // tokens whose ids are known: prompt and generated
  // Of these, those that may be computed in chunks; the rest are computed one a step, generated
  // ones that a preemption lost included. By default all.
  int64_t num_prompt = std::numeric_limits<int64_t>::max();
  int64_t num_computed = 0;           // of these, whose keys and values are in the cache
  int64_t first_logit = 0;            // from this position on every token needs a row of logits
  int64_t num_cached = 0;             // waiting only: tokens of a cached prefix it would start from
  int64_t num_idle_cached_pages = 0;  // waiting only: pages of it that nobody holds
  std::span<const int32_t> pages = {};  // running only: pages held, one entry for each hold
  bool copies_last_page = false;        // running only: the page it writes next is shared
  int32_t num_beams = 0;                // > 0: beams that step together, one token each
  int64_t num_beam_pages = 0;           // pages their next step takes, copies included
  int32_t num_rows = 1;                 // batch rows it may come to need: its siblings or beams
  int32_t priority = 0;
  uint64_t arrival = 0;  // order of arrival; no two are equal
};

struct PlanLimits {
  int64_t max_tokens = 0;  // of one step
  int64_t max_batch = 0;   // sequences in one step
  int64_t max_logits = 0;  // rows of logits in one step
  int64_t page_size = 0;
  int64_t num_available_pages = 0;
};

struct PlannedChunk {
  int64_t entry = 0;       // index into running, or into waiting
  int64_t num_tokens = 0;  // to compute this step; of beams, one for each
};

struct Plan {
  std::vector<int64_t> preempt;       // indices into running, the last in order first
  std::vector<PlannedChunk> running;  // steps of one token, then chunks, each in order
  std::vector<PlannedChunk> admit;    // indices into waiting, in order
};

// The order is by priority, then arrival. Running sequences go before waiting ones and one-token
// steps before chunks, so that a long prompt never stalls the rest.
//
// Tokens    Each running sequence gets its one token; what is left of the budget goes to chunks of
//           prompts in order. One token is kept for the first in order, whatever it is.
// Pages     Given in order. One that gets none for even a token has the last in order preempted;
//           the last itself waits with the pages it holds. A preempted sequence gives up the pages
//           that no other running sequence holds.
// Admission Strictly in order, and only into pages nobody running is short of: none in a step that
//           preempted or left someone waiting for a page. All known tokens must fit, beside what
//           running prompts still need, so that nothing is admitted only to be preempted.
// Progress  The first in order always computes something, if one context fits the pool and its
//           beams fit the limits; so every sequence comes to its end.
Plan plan(std::span<const PlanEntry> running, std::span<const PlanEntry> waiting,
          const PlanLimits& limits);

}  // namespace tessera::engine
