#include "dtensor/ops/rank_reduction.h"

#include <string>
#include <string_view>
#include <utility>

#include "dtensor/placement/rule.h"

namespace dtensor::ops {
namespace {

// Is a dim cut whose letter the result has not?
bool cuts_reduced(const Layout& x, std::string_view letters) {
  const std::string_view kept = letters.substr(letters.find('>') + 1);
  for (int d = 0; d < x.ndim(); ++d) {
    const bool reduced = kept.find(letters[static_cast<size_t>(d)]) == std::string_view::npos;
    if (reduced && !x.spec().levels(d).empty()) return true;
  }
  return false;
}

}  // namespace

std::vector<Tensor> reduce_over_ranks(const std::vector<Tensor>& locals, const DTensor& x,
                                      const RankReduction& reduction) {
  if (!x.mesh().defined() || !cuts_reduced(x.layout(), reduction.letters)) return locals;
  const Rule rule{.op = std::string(reduction.options.op),
                  .letters = reduction.letters,
                  .reduce = reduction.op};
  const Layout in = x.layout();
  const Layout from = match_rule(rule, {&in, 1}, true).result.out.front();
  Layout to = from;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    if (to.placement(m).is_partial()) to = to.with(m, Replicate());
  }
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
