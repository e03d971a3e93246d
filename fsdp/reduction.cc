#include "dtensor/fsdp/reduction.h"

#include <algorithm>
#include <utility>

#include "dtensor/fsdp/slow_tier.h"
#include "dtensor/fsdp/trace.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"

namespace dtensor::fsdp {
namespace {

// Onto the leaf, past its hooks; in the parameter's memory, where that is in a slow tier.
void give(const nn::Parameter& parameter, const DTensor& grad) {
  DTensor& value = parameter.value();
  if (value.impl()->hooks.empty()) {
    value.set_grad(accumulate(value.grad(), grad));
  } else {
    BackwardPass({}).run(value, grad);
  }
  const DTensor given = value.grad();
  if (parameter.memory() == nullptr || !given.defined() || !given.has_local()) return;
  const nn::MemoryOf there(parameter);
  value.set_grad(DTensor(given.local_tensor().clone(), given.layout(), given.mesh()));
  let_go_gradient(parameter);
}

// In how many of the gradients a sum over other mesh dims is left, as text. In the label of the
// call: ranks that do not agree on it, so that some would wait in the next leg for others, get an
// error at once.
std::string sums_left(const std::vector<WholeGradient>& grads, const MeshSlice& dims) {
  std::string text;
  for (int m = 0; m < dims.mesh.ndim(); ++m) {
    if (std::ranges::find(dims.dims, m) != dims.dims.end()) continue;
    const auto count = std::ranges::count_if(
        grads, [m](const WholeGradient& g) { return g.grad.layout().placement(m).is_partial(); });
    if (count == 0) continue;
    text += " then " + std::to_string(count) + " over " + dims.mesh.layout().name(m);
  }
  return text;
}

}  // namespace

DTensor in_dtype(const DTensor& grad, DType dtype) {
  if (grad.dtype() == dtype) return grad;
  return grad.has_local() ? DTensor(grad.local_tensor().to(dtype), grad.layout(), grad.mesh())
                          : DTensor(dtype, grad.layout(), grad.mesh());
}

Reduction::Reduction(MeshSlice dims, std::vector<WholeGradient> grads, std::string name)
    : dims_(std::move(dims)),
      grads_(std::move(grads)),
      name_(std::move(name)),
      begin_(std::chrono::steady_clock::now()),
      stats_(shared_stats()) {
  stats_->add_reductions(1);
  std::vector<Layout> to;
  for (const auto& [parameter, grad] : grads_) {
    std::vector<Placement> cut;
    for (const int m : dims_.dims) cut.push_back(parameter.value().layout().placement(m));
    to.push_back(grad.layout().with(dims_.dims, cut));
    if (grad.has_local()) bytes_ += grad.local_tensor().size_bytes();
  }
  left_ = sums_left(grads_, dims_);
  try {
    issue(to);
  } catch (...) {
    stats_->add_reductions(-1);
    throw;
  }
}

Reduction::~Reduction() { stats_->add_reductions(-1); }

void Reduction::issue(const std::vector<Layout>& to) {
  to_ = to;
  moving_.clear();
  std::vector<MoveItem> items;
  for (size_t k = 0; k < grads_.size(); ++k) {
    DTensor& grad = grads_[k].grad;
    if (!grad.has_local()) {
      grad = DTensor(grad.dtype(), to[k], grad.mesh());
    } else if (!(to[k] == grad.layout())) {
      moving_.push_back(k);
      items.push_back({.local = grad.local_tensor(),
                       .from = grad.layout(),
                       .to = to[k],
                       .label = grads_[k].parameter.name() + (items.empty() ? left_ : "")});
      grad = DTensor();  // the item alone keeps the memory
    }
  }
  left_.clear();
  if (items.empty()) return;
  issued_ = std::chrono::steady_clock::now();
  const MoveOptions options{.op = "fsdp", .cause = Cause::kAdjoint, .of = "fsdp"};
  move_ = Move::start(dims_.mesh, std::move(items), options);
}

void Reduction::land() {
  if (move_) {
    Move move = std::move(*move_);
    move_.reset();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Tensor> moved = move.finish();
    const auto end = std::chrono::steady_clock::now();
    stats_->in_flight += end - issued_;
    stats_->waited += end - begin;
    for (size_t j = 0; j < moving_.size(); ++j) {
      const size_t k = moving_[j];
      grads_[k].grad = DTensor(std::move(moved[j]), to_[k], dims_.mesh);
    }
  }
}

bool Reduction::go_on() {
  land();
  for (auto& [parameter, grad] : grads_) {
    const DType own = parameter.value().dtype();
    if (size_of(own) > size_of(grad.dtype())) grad = in_dtype(grad, own);
  }
  issue(parameter_layouts());
  if (move_) return true;
  give_gradients();
  return false;
}

std::vector<Layout> Reduction::parameter_layouts() const {
  std::vector<Layout> layouts;
  for (const WholeGradient& g : grads_) layouts.push_back(g.parameter.value().layout());
  return layouts;
}

void Reduction::give_gradients() {
  for (auto& [parameter, grad] : grads_) {
    give(parameter, in_dtype(std::exchange(grad, {}), parameter.value().dtype()));
  }
  if (is_tracing()) {
    trace({Phase::kReduce, name_, begin_, std::chrono::steady_clock::now(), bytes_});
  }
}

void Reductions::make_room() {
  for (auto& reduction : std::exchange(live_, {})) {
    if (reduction->go_on()) live_.push_back(std::move(reduction));
  }
}

void Reductions::add(std::unique_ptr<Reduction> reduction) {
  live_.push_back(std::move(reduction));
}

void Reductions::finish() {
  while (!live_.empty()) make_room();
}

}  // namespace dtensor::fsdp
