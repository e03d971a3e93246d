#include "dtensor/ops/class_stats.h"

#include "dtensor/ops/dispatch.h"

namespace dtensor::ops {

Tensor reduce_over_ranks(const Tensor& local, const DTensor& x, const RankReduction& reduction) {
  if (!x.mesh().defined()) return local;
  const Rule rule{.op = std::string(reduction.options.op),
                  .letters = reduction.letters,
                  .reduce = reduction.op};
  const Layout in = x.layout();
  const Layout from = match_rule(rule, {&in, 1}, true).result.out.front();
  Layout to = from;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    if (to.placement(m).is_partial()) to = to.with(m, Replicate());
  }
  if (from == to) return local;
  return move_local(x.mesh(), MoveItem{.local = local, .from = from, .to = to}, reduction.options);
}

cpu::SoftmaxStats class_stats(const DTensor& logits, const Tensor& local,
                              const MoveOptions& options) {
  if (logits.spec().levels(logits.ndim() - 1).empty()) return cpu::softmax_stats(local);
  const std::string l = letters_of(logits.ndim() - 1);
  const std::string letters = l + "v->" + l;
  cpu::SoftmaxStats stats;
  stats.max = reduce_over_ranks(cpu::row_max(local), logits, {letters, PartialOp::kMax, options});
  stats.sum = reduce_over_ranks(cpu::row_sum_exp(local, stats.max), logits,
                                {letters, PartialOp::kSum, options});
  return stats;
}

}  // namespace dtensor::ops
