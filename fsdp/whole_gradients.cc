#include "dtensor/fsdp/whole_gradients.h"

#include <utility>

#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/move.h"

namespace dtensor::fsdp {
namespace {

// In another dtype. A rank outside the mesh has no local tensor.
DTensor as(const DTensor& grad, DType dtype) {
  if (grad.dtype() == dtype) return grad;
  return grad.has_local() ? DTensor(grad.local_tensor().to(dtype), grad.layout(), grad.mesh())
                          : DTensor(dtype, grad.layout(), grad.mesh());
}

}  // namespace

WholeGradients::WholeGradients(std::vector<nn::Parameter> parameters, MeshSlice dims)
    : parameters_(std::move(parameters)), dims_(std::move(dims)), held_(parameters_.size()) {}

void WholeGradients::add(size_t index, const DTensor& grad, DType wire) {
  DTensor& held = held_[index].grad;
  held = accumulate(held, as(grad, wire));
}

void WholeGradients::show(size_t index) {
  Held& held = held_[index];
  DTensor& value = parameters_[index].value();
  held.before = value.grad();
  held.shown = as(held.grad, value.dtype());
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

std::vector<DTensor> WholeGradients::reduce(std::span<const size_t> indices) {
  const std::vector<Placement> cut(dims_.dims.size(), Shard(0));
  std::vector<Layout> to;
  for (const size_t i : indices) {
    const Layout& layout = held_[i].grad.layout();
    to.push_back(layout.ndim() == 0 ? layout : layout.with(dims_.dims, cut));
  }
  return move(indices, to);
}

std::vector<DTensor> WholeGradients::move(std::span<const size_t> indices,
                                          std::span<const Layout> to) {
  std::vector<DTensor> result;
  std::vector<MoveItem> items;
  std::vector<size_t> moving;
  for (size_t k = 0; k < indices.size(); ++k) {
    DTensor grad = std::exchange(held_[indices[k]].grad, {});
    if (grad.has_local() && !(to[k] == grad.layout())) {
      moving.push_back(k);
      items.push_back({.local = grad.local_tensor(),
                       .from = grad.layout(),
                       .to = to[k],
                       .label = parameters_[indices[k]].name()});
    }
    if (!grad.has_local()) grad = DTensor(grad.dtype(), to[k], grad.mesh());
    result.push_back(std::move(grad));
  }
  if (!items.empty()) {
    for (const size_t k : moving) result[k] = DTensor();  // the items alone keep the memory
    const MoveOptions options{.op = "fsdp", .cause = Cause::kAdjoint, .of = "fsdp"};
    std::vector<Tensor> moved = Move::start(dims_.mesh, std::move(items), options).finish();
    for (size_t j = 0; j < moving.size(); ++j) {
      result[moving[j]] = DTensor(std::move(moved[j]), to[moving[j]], dims_.mesh);
    }
  }
  for (size_t k = 0; k < indices.size(); ++k) {
    result[k] = as(result[k], parameters_[indices[k]].value().dtype());
  }
  return result;
}

void WholeGradients::flush() {
  std::vector<size_t> indices;
  std::vector<Layout> to;
  for (size_t i = 0; i < held_.size(); ++i) {
    take_back(i);
    if (!has(i)) continue;
    indices.push_back(i);
    to.push_back(parameters_[i].value().layout());
  }
  const std::vector<DTensor> reduced = move(indices, to);
  for (size_t k = 0; k < indices.size(); ++k) {
    DTensor& value = parameters_[indices[k]].value();
    value.set_grad(accumulate(value.grad(), reduced[k]));
  }
}

}  // namespace dtensor::fsdp
