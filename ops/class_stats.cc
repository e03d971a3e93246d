#include "dtensor/ops/class_stats.h"

#include <string>

#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/rank_reduction.h"

namespace dtensor::ops {

Tensor reduce_classes(const Tensor& local, const ClassRows& of, PartialOp op,
                      const MoveOptions& options) {
  const std::string all = letters_of(of.x.ndim());
  std::string kept = all;
  kept.erase(static_cast<size_t>(of.dim), 1);
  return reduce_over_ranks(local, of.x, {all + "->" + kept, op, options});
}

cpu::SoftmaxStats class_stats(const ClassRows& of, const MoveOptions& options) {
  if (of.x.spec().levels(of.dim).empty()) return cpu::softmax_stats(of.rows);
  cpu::SoftmaxStats stats;
  stats.max = reduce_classes(cpu::row_max(of.rows), of, PartialOp::kMax, options);
  stats.sum = reduce_classes(cpu::row_sum_exp(of.rows, stats.max), of, PartialOp::kSum, options);
  return stats;
}

}  // namespace dtensor::ops
