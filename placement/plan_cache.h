// PlanCache: plans that were made before, with what one rank does in them. Programs repeat the same
// few moves. A slot of the Context, or the caller's; not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "dtensor/placement/reshard_plan.h"

namespace dtensor {

// A plan and one rank's part of it.
struct RankPlan {
  ReshardPlan plan;
  std::vector<RankStep> mine;  // by step
};

class PlanCache {
 public:
  static constexpr size_t kMostPlans = 4096;  // then it is emptied

  // plan(from, to) and the part of `rank`. A look-up compares the interned Specs by identity and
  // allocates nothing. The errors of plan(); those are not kept.
  std::shared_ptr<const RankPlan> get(const Layout& from, const Layout& to, int rank);

  size_t size() const { return plans_.size(); }
  int64_t made() const { return made_; }  // plans made by get(), in all

 private:
  // Layouts live as long as their entry, so that no other Spec has their identity.
  struct Key {
    Layout from;
    Layout to;
    int rank = 0;
  };
  struct View {
    const Layout& from;
    const Layout& to;
    int rank;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const View& key) const;
    size_t operator()(const Key& key) const { return (*this)(View{key.from, key.to, key.rank}); }
  };
  struct Equal {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.rank == b.rank && a.from.spec().id() == b.from.spec().id() &&
             a.to.spec().id() == b.to.spec().id() && a.from.shape() == b.from.shape() &&
             a.to.shape() == b.to.shape();
    }
  };
  std::unordered_map<Key, std::shared_ptr<const RankPlan>, Hash, Equal> plans_;
  int64_t made_ = 0;
};

}  // namespace dtensor
