#include "dtensor/fsdp/whole_gradients.h"

#include <utility>

#include "dtensor/tensor/autograd.h"

namespace dtensor::fsdp {
WholeGradients::WholeGradients(std::vector<nn::Parameter> parameters)
    : parameters_(std::move(parameters)), held_(parameters_.size()) {}

void WholeGradients::add(size_t index, const DTensor& grad, DType wire) {
  Held& held = held_[index];
  held.wire = wire;
  held.grad = accumulate(held.grad, in_dtype(grad, held.grad.defined() ? held.grad.dtype() : wire));
}

void WholeGradients::show(size_t index) {
  Held& held = held_[index];
  DTensor& value = parameters_[index].value();
  if (size_of(held.grad.dtype()) == 2) held.grad = in_dtype(held.grad, DType::kFloat32);
  held.before = value.grad();
  held.shown = in_dtype(held.grad, value.dtype());
  value.set_grad(held.shown);
}

void WholeGradients::take_back(size_t index) {
  Held& held = held_[index];
  if (!held.shown.defined()) return;
  DTensor& value = parameters_[index].value();
  const DTensor now = value.grad();
  if (now.defined() && now.impl() == held.shown.impl()) {
    value.set_grad(held.before);
  } else {
    held.grad = DTensor();
  }
  held.shown = DTensor();
  held.before = DTensor();
}

void WholeGradients::drop_unshown() {
  for (Held& held : held_) {
    if (!held.shown.defined()) held.grad = DTensor();
  }
}

std::vector<WholeGradient> WholeGradients::take(std::span<const size_t> indices) {
  std::vector<WholeGradient> taken;
  for (const size_t i : indices) {
    Held& held = held_[i];
    taken.push_back({parameters_[i], in_dtype(std::exchange(held.grad, {}), held.wire)});
  }
  return taken;
}

std::vector<WholeGradient> WholeGradients::take_deferred() {
  std::vector<size_t> indices;
  for (size_t i = 0; i < held_.size(); ++i) {
    take_back(i);
    if (has(i)) indices.push_back(i);
  }
  return take(indices);
}

}  // namespace dtensor::fsdp
