// LastingRules: rules that a call need not make: one for every kind of op in a family and every
// number of dims, made at the first use and kept as long as the program runs, so that an address
// stands for a rule (OpCall::lasting). Thread-safe. Internal.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "dtensor/base/error.h"
#include "dtensor/base/shape.h"
#include "dtensor/placement/rule.h"

namespace dtensor::ops {

template <size_t kKinds>
class LastingRules {
 public:
  // `make` is called where a rule is asked for first; by two threads, one of their rules is kept.
  using Make = Rule (*)(size_t kind, int ndim);
  explicit LastingRules(Make make) : make_(make) {}
  ~LastingRules() {
    for (auto& rules : rules_) {
      for (auto& rule : rules) delete rule.load();
    }
  }
  LastingRules(const LastingRules&) = delete;
  LastingRules& operator=(const LastingRules&) = delete;

  const Rule& of(size_t kind, int ndim) {
    internal_check(kind < kKinds && ndim >= 0 && ndim <= kMaxDims, "no such rule is kept");
    std::atomic<const Rule*>& place = rules_[kind][static_cast<size_t>(ndim)];
    const Rule* rule = place.load(std::memory_order_acquire);
    return rule != nullptr ? *rule : keep(place, make_(kind, ndim));
  }

 private:
  static const Rule& keep(std::atomic<const Rule*>& place, const Rule& made) {
    auto own = std::make_unique<const Rule>(made);
    const Rule* expected = nullptr;
    if (!place.compare_exchange_strong(expected, own.get())) return *expected;
    return *own.release();
  }

  Make make_;
  std::array<std::array<std::atomic<const Rule*>, kMaxDims + 1>, kKinds> rules_{};
};

}  // namespace dtensor::ops
