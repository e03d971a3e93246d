// Stats: what the groups of a Context hold, and what their communication cost so far.

#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "dtensor/base/context.h"

namespace dtensor::fsdp {

struct Stats {
  // Groups that are gathered or being gathered, besides the root's and those that are kept after
  // forward: at most two at a time where groups do not stand inside each other and no prefetch was
  // asked for by name.
  int live_groups = 0;
  int peak_groups = 0;
  // Reductions under way: each holds the whole gradients of one group (or, when the sum over
  // replicas is left, shards of them).
  int live_reductions = 0;
  int peak_reductions = 0;
  // Totals. From the issue of each gather and reduction until its result was taken, and how much of
  // that this rank waited for it. 1 - waited / (waited under Overlap::kNone) is the share of
  // communication time that is hidden.
  std::chrono::nanoseconds in_flight{0};
  std::chrono::nanoseconds waited{0};

  void add_groups(int n) {
    live_groups += n;
    peak_groups = std::max(peak_groups, live_groups);
  }
  void add_reductions(int n) {
    live_reductions += n;
    peak_reductions = std::max(peak_reductions, live_reductions);
  }
};

// Of this Context.
Stats stats();
void reset_peak();

// The Context's slot. Shared: a gathered group may outlive the Context in which it was made.
inline std::shared_ptr<Stats> shared_stats() {
  auto& shared = Context::current().slot<std::shared_ptr<Stats>>();
  if (shared == nullptr) shared = std::make_shared<Stats>();
  return shared;
}

// So many groups may be gathered at a time: the one computed with and the one gathered ahead.
inline constexpr int kMostLiveGroups = 2;

}  // namespace dtensor::fsdp
