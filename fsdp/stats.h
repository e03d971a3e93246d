// LiveGroups: how many groups of a Context are gathered. A slot of the Context.

#pragma once

#include <algorithm>
#include <memory>

#include "dtensor/base/context.h"

namespace dtensor::fsdp {

struct LiveGroups {
  int now = 0;
  int peak = 0;

  void add(int n) {
    now += n;
    peak = std::max(peak, now);
  }
  // Shared: a gathered group may outlive the Context in which it was made.
  static std::shared_ptr<LiveGroups> current() {
    auto& shared = Context::current().slot<std::shared_ptr<LiveGroups>>();
    if (shared == nullptr) shared = std::make_shared<LiveGroups>();
    return shared;
  }
};

// So many groups may be gathered at a time: the one computed with and the one gathered ahead.
inline constexpr int kMostLiveGroups = 2;

}  // namespace dtensor::fsdp
