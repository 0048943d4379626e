// What the next step computes: a pure function of the queues and the free pages.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::engine {

// A running or waiting sequence as the plan sees it; or all beams of one search, which step
// together.
struct PlanEntry {
  int64_t num_known = 0;  // tokens that can be computed: prompt and generated, the one being drawn
                          // included unless it is the last
  // How many of them may be computed in chunks. The rest are computed one per step, also those that
  // a preemption made the sequence lose. By default all.
  int64_t num_prompt = std::numeric_limits<int64_t>::max();
  int64_t num_computed = 0;             // tokens whose keys and values are in the cache
  int64_t first_logit = 0;              // from this position on every token needs a row of logits
  int64_t num_cached = 0;               // waiting only: length of the cached prefix it would reuse
  int64_t num_idle_cached_pages = 0;    // waiting only: pages of that prefix that nobody holds
  std::span<const int32_t> pages = {};  // running only: pages held, once per beam that holds them
  bool copies_last_page = false;        // running only: the page it writes next is shared
  int32_t num_beams = 0;                // > 0: beams that step together, one token each
  int64_t num_beam_pages = 0;           // pages the beams' next step takes, copies included
  int32_t num_rows = 1;                 // batch rows it may need later: its siblings or beams
  int64_t num_draft = 0;                // running only: guesses to verify with its one token
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
  int64_t num_tokens = 0;  // to compute this step; for beams, one each
  int64_t num_draft = 0;   // guesses to verify, each a batch row of one token
};

struct Plan {
  std::vector<int64_t> preempt;       // indices into running, last in order first
  std::vector<PlannedChunk> running;  // steps of one token, then chunks, each in order
  std::vector<PlannedChunk> admit;    // indices into waiting, in order
};

// Sequences are ordered by priority, then by arrival. Running ones go before waiting ones, and
// one-token steps before chunks, so that a long prompt never stalls the rest.
//
// Tokens    Every running sequence gets its one token. The rest of the budget goes to chunks of
//           prompts, in order. One token is reserved for the first sequence in order.
// Pages     Given out in order. If a sequence cannot get a page even for one token, the last in
//           order is preempted; if it is the last itself, it waits and keeps its pages. Preemption
//           frees the pages that no other running sequence holds.
// Admission Strictly in order, and never in a step that preempted or that left a running sequence
//           without a page. All known tokens of a newcomer must fit beside what running prompts
//           still need, so that nothing is admitted only to be preempted.
// Drafts    Get what is left of tokens, logits, rows and pages when all else has been given out, in
//           order. Nothing is preempted or left waiting for them.
// Progress  The first sequence in order always computes something, provided that one context fits
//           into the pool and its beams into the limits. So every sequence finishes.
Plan plan(std::span<const PlanEntry> running, std::span<const PlanEntry> waiting,
          const PlanLimits& limits);

}  // namespace tessera::engine
