#include "dtensor/ops/rank_reduction.h"

#include <utility>

#include "dtensor/placement/rule.h"

namespace dtensor::ops {

std::vector<Tensor> reduce_over_ranks(const std::vector<Tensor>& locals, const DTensor& x,
                                      const RankReduction& reduction) {
  if (!x.mesh().defined()) return locals;
  const Rule rule{.op = std::string(reduction.options.op),
                  .letters = reduction.letters,
                  .reduce = reduction.op};
  const Layout in = x.layout();
  const Layout from = match_rule(rule, {&in, 1}, true).result.out.front();
  Layout to = from;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    if (to.placement(m).is_partial()) to = to.with(m, Replicate());
  }
  if (from == to) return locals;
  std::vector<MoveItem> items;
  for (const Tensor& local : locals) {
    if (local.defined()) items.push_back({.local = local, .from = from, .to = to});
  }
  const std::vector<Tensor> moved =
      Move::start(x.mesh(), std::move(items), reduction.options).finish();
  std::vector<Tensor> results;
  size_t next = 0;
  for (const Tensor& local : locals) {
    results.push_back(local.defined() ? moved[next++] : Tensor());
  }
  return results;
}

Tensor reduce_over_ranks(const Tensor& local, const DTensor& x, const RankReduction& reduction) {
  return reduce_over_ranks(std::vector<Tensor>{local}, x, reduction).front();
}

}  // namespace dtensor::ops
