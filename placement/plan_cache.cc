#include "dtensor/placement/plan_cache.h"

#include <utility>

namespace dtensor {

size_t PlanCache::Hash::operator()(const View& key) const {
  uint64_t h = static_cast<uint64_t>(key.rank);
  const auto mix = [&h](uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15U;
    h ^= h >> 32;
  };
  mix(reinterpret_cast<uintptr_t>(key.from.spec().id()));
  mix(reinterpret_cast<uintptr_t>(key.to.spec().id()));
  for (const int64_t d : key.from.shape()) mix(static_cast<uint64_t>(d));
  return h;
}

std::shared_ptr<const RankPlan> PlanCache::get(const Layout& from, const Layout& to, int rank) {
  if (const auto it = plans_.find(View{from, to, rank}); it != plans_.end()) return it->second;
  auto made = std::make_shared<RankPlan>();
  made->plan = plan(from, to);
  for (int i = 0; i < static_cast<int>(made->plan.steps().size()); ++i) {
    made->mine.push_back(made->plan.rank_step(i, rank));
  }
  ++made_;
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.emplace(Key{from, to, rank}, made);
  return made;
}

}  // namespace dtensor
