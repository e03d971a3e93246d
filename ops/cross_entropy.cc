#include "dtensor/ops/cross_entropy.h"

#include <memory>
#include <string>
#include <utility>

#include "dtensor/ops/cpu/cross_entropy.h"
#include "dtensor/ops/cpu/embedding.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/tensor/move.h"

namespace dtensor {
namespace {

// What forward leaves for backward, of this rank's piece.
struct State {
  CrossEntropyOptions options;
  cpu::SoftmaxStats stats;
  double count = 0.0;  // global
};

Layout without_partial(Layout layout) {
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_partial()) layout = layout.with(m, Replicate());
  }
  return layout;
}

// A local reduction of `x` by `letters`, made whole: the all-reduce that the call asked for.
Tensor reduce_over_ranks(const Tensor& local, const DTensor& x, const std::string& letters,
                         PartialOp op, CallSite site) {
  if (!x.mesh().defined()) return local;
  const Rule rule{.op = "cross_entropy", .letters = letters, .reduce = op};
  const Layout in = x.layout();
  const Layout from = match_rule(rule, {&in, 1}, true).result.out.front();
  const Layout to = without_partial(from);
  if (from == to) return local;
  return move_local(x.mesh(), MoveItem{.local = local, .from = from, .to = to},
                    MoveOptions{.op = "cross_entropy", .site = site});
}

cpu::SoftmaxStats softmax_stats(const DTensor& logits, const Tensor& local, const std::string& l,
                                CallSite site) {
  if (logits.spec().levels(logits.ndim() - 1).empty()) return cpu::softmax_stats(local);
  const std::string letters = l + "v->" + l;
  cpu::SoftmaxStats stats;
  stats.max = reduce_over_ranks(cpu::row_max(local), logits, letters, PartialOp::kMax, site);
  stats.sum =
      reduce_over_ranks(cpu::row_sum_exp(local, stats.max), logits, letters, PartialOp::kSum, site);
  return stats;
}

double global_count(const CrossEntropyOptions& options, const DTensor& targets, const Tensor& local,
                    const std::string& l, CallSite site) {
  if (options.count) return static_cast<double>(*options.count);
  if (!options.ignore_index) return static_cast<double>(targets.numel());
  const int64_t mine = cpu::count_valid(local, options.ignore_index);
  const Tensor total =
      reduce_over_ranks(Tensor::of<int64_t>({mine}, {}), targets, l + "->", PartialOp::kSum, site);
  return static_cast<double>(*total.data<int64_t>());
}

double number(const Tensor& scalar) { return *scalar.to(DType::kFloat64).data<double>(); }

DTensor gradient(const State& state, const DTensor& g, const DTensor& logits,
                 const DTensor& targets) {
  const std::string l = ops::letters_of(targets.ndim());
  const Rule rule{.op = "cross_entropy_backward",
                  .letters = "," + l + "v," + l + "->" + l + "v",
                  .linear = {{0}},
                  .names = {"g", "logits", "targets"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    const cpu::ClassPart part{info.range('v'), state.options.ignore_index};
    return std::vector<Tensor>{
        cpu::cross_entropy_backward(in[1], state.stats, in[2], part, number(in[0]) / state.count)};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = logits.dtype()}, {g, logits, targets});
}

}  // namespace

DTensor cross_entropy(const DTensor& logits, const DTensor& targets,
                      const CrossEntropyOptions& options, CallSite site) {
  ops::check_floating("cross_entropy", logits);
  ops::check_same_dtype("cross_entropy", {targets});
  if (targets.dtype() != DType::kInt64) {
    throw ArgumentError("cross_entropy: targets are " + std::string(name_of(targets.dtype())) +
                        "; use cast(targets, DType::kInt64)");
  }
  const std::string l = ops::letters_of(targets.ndim());
  const Rule rule{.op = "cross_entropy",
                  .letters = l + "v," + l + "->",
                  .communicating = "v",
                  .ask = "{.sharded_classes = true}",
                  .names = {"logits", "targets"}};
  const auto state = std::make_shared<State>();
  state->options = options;
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, std::span<const Tensor> in) {
    cpu::check_ids(in[1], info.size('v'), options.ignore_index, "cross_entropy");
    state->stats = softmax_stats(info.input(0), in[0], l, site);
    state->count = global_count(options, info.input(1), in[1], l, site);
    const cpu::ClassPart part{info.range('v'), options.ignore_index};
    return std::vector<Tensor>{
        cpu::cross_entropy_loss(in[0], state->stats, in[1], part, 1.0 / state->count)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [state, logits = Saved(in[0], "cross_entropy"),
            targets = Saved(in[1], "cross_entropy")](std::span<const DTensor> g) {
      return std::vector<DTensor>{gradient(*state, g[0], logits.value(), targets.value()),
                                  DTensor()};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_classes,
                    .dtype = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                    .site = site},
                   {logits, targets});
}

}  // namespace dtensor
