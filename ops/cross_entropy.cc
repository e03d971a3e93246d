#include "dtensor/ops/cross_entropy.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "dtensor/ops/binary.h"
#include "dtensor/ops/cast.h"
#include "dtensor/ops/class_stats.h"
#include "dtensor/ops/compare.h"
#include "dtensor/ops/cpu/binary.h"
#include "dtensor/ops/cpu/cross_entropy.h"
#include "dtensor/ops/cpu/embedding.h"
#include "dtensor/ops/cpu/half.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/index.h"
#include "dtensor/ops/like.h"
#include "dtensor/ops/rank_reduction.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/softmax.h"
#include "dtensor/ops/twice.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/where.h"
#include "dtensor/tensor/move.h"

namespace dtensor {
namespace {

// What forward leaves for backward, of this rank's piece.
struct State {
  CrossEntropyOptions options;
  cpu::SoftmaxStats stats;
  double count = 0.0;  // global
};

// The targets that count, on all ranks. A rank that has one that is no class sends NaN for its
// number, so that all ranks throw here and none waits for another.
double total_count(const CrossEntropyOptions& options, const DTensor& targets, const Tensor& local,
                   int64_t classes, const MoveOptions& asked) {
  auto mine = static_cast<double>(cpu::count_valid(local, options.ignore_index));
  std::string wrong;
  try {
    cpu::check_ids(local, classes, options.ignore_index, "cross_entropy");
  } catch (const ArgumentError& e) {
    wrong = e.what();
    mine = std::numeric_limits<double>::quiet_NaN();
  }
  const Tensor total =
      ops::reduce_over_ranks(Tensor::of<double>({mine}, {}), targets,
                             {ops::letters_of(targets.ndim()) + "->", PartialOp::kSum, asked});
  if (!wrong.empty()) throw ArgumentError(wrong);
  const double count = *total.data<double>();
  if (!std::isnan(count)) return count;
  throw ArgumentError("cross_entropy has a target on another rank that is not in [0, " +
                      std::to_string(classes) + ") and not " +
                      std::to_string(*options.ignore_index) +
                      ", the ignored one; the error of that rank names it");
}

double global_count(const CrossEntropyOptions& options, const DTensor& targets, const Tensor& local,
                    int64_t classes, const MoveOptions& asked) {
  const bool mean = options.reduction == LossReduction::kMean;
  if (mean && !options.count && options.ignore_index) {
    return total_count(options, targets, local, classes, asked);
  }
  cpu::check_ids(local, classes, options.ignore_index, "cross_entropy");
  if (!mean) return 1.0;
  return static_cast<double>(options.count ? *options.count : targets.numel());
}

cpu::ClassPart part_of(const CrossEntropyOptions& options, const ops::KernelInfo& info) {
  return {.classes = info.range('v'),
          .ignore_index = options.ignore_index,
          .smoothing = options.label_smoothing,
          .total = info.size('v')};
}

// Letters of the loss: none, or those of the targets.
std::string loss_letters(const CrossEntropyOptions& options, const std::string& l) {
  return options.reduction == LossReduction::kNone ? l : "";
}

DTensor gradient_of_ops(const State& state, const DTensor& g, const DTensor& logits,
                        const DTensor& targets);

DTensor gradient(const State& state, const DTensor& g, const DTensor& logits,
                 const DTensor& targets) {
  if (grad_enabled()) return gradient_of_ops(state, g, logits, targets);
  const std::string l = ops::letters_of(targets.ndim());
  const Rule rule{.op = "cross_entropy_backward",
                  .letters = loss_letters(state.options, l) + "," + l + "v," + l + "->" + l + "v",
                  .linear = {{0}},
                  .names = {"g", "logits", "targets"}};
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const cpu::ClassPart part = part_of(state.options, info);
    const Tensor factors = cpu::binary(cpu::BinaryOp::kDiv, in[0].to(DType::kFloat64), state.count);
    const Tensor mine = cpu::f16_as_f32(in[1]);
    return ops::Tensors{
        cpu::cross_entropy_backward(mine, state.stats, in[2], part, factors).to(in[1].dtype())};
  };
  return ops::run1({.rule = rule, .kernel = kernel, .dtype = logits.dtype()}, {g, logits, targets});
}

// g (softmax(logits) - target), of which the kernel gives what does not depend on the logits.
DTensor gradient_of_ops(const State& state, const DTensor& g, const DTensor& logits,
                        const DTensor& targets) {
  const int last = logits.ndim() - 1;
  ops::check_uncut("cross_entropy", logits, {last});
  const bool each = state.options.reduction == LossReduction::kNone;
  const DTensor p = softmax(cast(logits, g.dtype()));
  DTensor target;
  DTensor weight;  // [...,1]
  {
    const NoGrad no_grad;
    weight = ones_like(targets, {.dtype = g.dtype()});
    const DTensor one = each ? weight : DTensor(Tensor::full({}, 1.0, g.dtype()));
    const DTensor slope = cast(gradient(state, one, logits.detach(), targets), g.dtype());
    if (const auto ignored = state.options.ignore_index) {
      weight = cast(ne(targets, static_cast<double>(*ignored)), g.dtype());
    }
    weight = unsqueeze(div(weight, state.count), last);
    target = sub(mul(p.detach(), weight), slope);
  }
  const DTensor slope = sub(mul(p, weight), target);
  return cast(mul(slope, each ? unsqueeze(g, last) : g), logits.dtype());
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
  if (!(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0)) {
    throw ArgumentError("cross_entropy: label_smoothing is " +
                        std::to_string(options.label_smoothing) + ", not in [0, 1]");
  }
  const std::string l = ops::letters_of(targets.ndim());
  const Rule rule{.op = "cross_entropy",
                  .letters = l + "v," + l + "->" + loss_letters(options, l),
                  .communicating = "v",
                  .ask = "{.sharded_classes = true}",
                  .names = {"logits", "targets"}};
  const auto state = std::make_shared<State>();
  state->options = options;
  const ops::Kernel kernel = [&](const ops::KernelInfo& info, ops::Pieces in) {
    const MoveOptions asked{.op = "cross_entropy", .site = site};
    const Tensor mine = cpu::f16_as_f32(in[0]);
    state->count = global_count(options, info.input(1), in[1], info.size('v'), asked);
    state->stats = ops::class_stats({info.input(0), targets.ndim(), mine}, asked);
    const cpu::ClassPart part = part_of(options, info);
    if (options.reduction == LossReduction::kNone) {
      return ops::Tensors{cpu::cross_entropy_losses(mine, state->stats, in[1], part)};
    }
    return ops::Tensors{
        cpu::cross_entropy_loss(mine, state->stats, in[1], part, 1.0 / state->count)};
  };
  const auto backward = [&](std::span<const DTensor> in, std::span<const DTensor>) -> BackwardFn {
    return [state, logits = Saved(in[0], "cross_entropy"),
            targets = Saved(in[1], "cross_entropy")](std::span<const DTensor> g) {
      return Grads{gradient(*state, g[0], logits.value(), targets.value()), DTensor()};
    };
  };
  return ops::run1({.rule = rule,
                    .kernel = kernel,
                    .backward = backward,
                    .allow_communicating = options.sharded_classes,
                    .dtype = logits.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32,
                    .site = site,
                    .twice = true},
                   {logits, targets});
}

DTensor nll_loss(const DTensor& x, const DTensor& targets, const NllLossOptions& options,
                 CallSite site) {
  ops::check_floating("nll_loss", x);
  ops::check_same_dtype("nll_loss", {targets});
  if (targets.dtype() != DType::kInt64 || x.ndim() != targets.ndim() + 1) {
    throw ArgumentError("nll_loss takes x [...,v] and targets i64 [...], got " +
                        to_string(x.shape()) + " and " + std::string(name_of(targets.dtype())) +
                        to_string(targets.shape()));
  }
  DTensor classes = targets;
  DTensor ignored;
  if (options.ignore_index) {
    ignored = eq(targets, static_cast<double>(*options.ignore_index), site);
    classes = masked_fill(targets, ignored, 0.0, site);
  }
  DTensor losses = gather(x, -1, unsqueeze(classes, -1, site), site);
  losses = mul(squeeze(losses, -1, site), -1.0, site);
  if (ignored.defined()) losses = masked_fill(losses, ignored, 0.0, site);
  if (options.reduction == LossReduction::kNone) return losses;
  const DTensor total = sum(losses, {}, KeepDims::kNo, site);
  if (options.reduction == LossReduction::kSum) return total;
  double count = static_cast<double>(options.count.value_or(targets.numel()));
  if (ignored.defined() && !options.count) {
    const DTensor left = sum(cast(ignored, DType::kFloat64, site), {}, KeepDims::kNo, site);
    if (!left.has_local()) return div(total, 1.0, site);  // outside the mesh: a handle alone
    count -= left.item(site);
  }
  // Of no target; by 0 a P(sum) cannot be divided.
  if (count == 0) return mul(total, std::numeric_limits<double>::quiet_NaN(), site);
  return div(total, count, site);
}

}  // namespace dtensor
