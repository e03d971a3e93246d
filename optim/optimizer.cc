#include "dtensor/optim/optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/base/file_allocator.h"
#include "dtensor/optim/distinct.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::optim {
namespace {

DType state_dtype(DType parameter) {
  return parameter == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// An f32 (f64) zero tensor placed as the parameter, in the same memory.
DTensor zeros_like(const nn::Parameter& p) {
  const nn::MemoryOf there(p);
  const DTensor& value = p.value();
  const DType dtype = state_dtype(value.dtype());
  const Tensor local =
      value.has_local() ? Tensor::zeros(value.local_tensor().shape(), dtype) : Tensor();
  return value.mesh().defined() ? DTensor(local, value.layout(), value.mesh()) : DTensor(local);
}

// Takes over the elements of `value` that `copy` does not round to.
template <class T>
void take_changed(const Tensor& value, const Tensor& copy) {
  const Tensor flat = value.contiguous();
  const T* now = flat.data<T>();
  auto* kept = copy.data<float>();
  for (int64_t i = 0; i < copy.numel(); ++i) {
    if (!(T(kept[i]) == now[i])) kept[i] = static_cast<float>(now[i]);
  }
}

void check_gradient(const nn::Parameter& p, const DTensor& gradient) {
  if (gradient.spec().has_partial()) {
    throw PlacementError("optimizer step: the gradient of \"" + p.name() + "\" is Partial, " +
                         to_string(gradient.layout()) +
                         "; run the last backward of a step without {.defer = true}");
  }
  if (!equal_boundaries(gradient.layout(), p.value().layout())) {
    throw PlacementError("optimizer step: the gradient of \"" + p.name() + "\" is " +
                         to_string(gradient.layout()) + ", the parameter " +
                         to_string(p.value().layout()) +
                         "; wrap the model before the first backward");
  }
}

}  // namespace

Optimizer::Optimizer(const std::vector<nn::Parameter>& parameters)
    : parameters_(distinct(parameters)), updates_(parameters_.size(), 0) {
  for (const nn::Parameter& p : parameters_) {
    if (!p.defined()) throw ArgumentError("optimizer: a parameter of the list is not defined");
  }
}

void Optimizer::step() {
  for (const nn::Parameter& p : parameters_) {
    const DTensor gradient = p.value().grad();
    if (gradient.defined()) check_gradient(p, gradient);
  }
  ++steps_;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const nn::Parameter& p = parameters_[i];
    if (i + 1 < parameters_.size()) give_hint(parameters_[i + 1], Hint::kWillNeed);
    const DTensor gradient = p.value().grad();
    if (gradient.defined()) ++updates_[i];
    if (gradient.defined() && p.value().has_local()) {
      update(p, gradient.local_tensor(), updates_[i]);
    }
    give_hint(p, Hint::kLetGo);
  }
}

void Optimizer::set_steps(int64_t steps) {
  steps_ = steps;
  std::ranges::fill(updates_, steps);
}

void Optimizer::set_updates(std::vector<int64_t> updates) {
  if (updates.size() != parameters_.size()) {
    throw ArgumentError("optimizer: " + std::to_string(updates.size()) +
                        " numbers of updates for " + std::to_string(parameters_.size()) +
                        " parameters; give one for each");
  }
  updates_ = std::move(updates);
}

void Optimizer::give_hint(const nn::Parameter& p, Hint hint) const {
  const auto* slow = dynamic_cast<const FileAllocator*>(p.memory().get());
  if (slow == nullptr || !p.value().has_local()) return;
  const auto give = [&](const DTensor& t) {
    const void* data = t.local_tensor().storage()->data();
    hint == Hint::kWillNeed ? slow->will_need(data) : slow->let_go(data);
  };
  give(p.value());
  const DTensor gradient = p.value().grad();
  if (gradient.defined() && gradient.has_local()) give(gradient);
  for (const ParameterState* state : states()) {
    if (const DTensor* t = state->find(p)) give(*t);
  }
}

void Optimizer::zero_grad() {
  for (const nn::Parameter& p : parameters_) p.value().set_grad({});
}

const DTensor& ParameterState::of(const nn::Parameter& p) {
  DTensor& value = values_[p.id()];
  if (!value.defined()) value = zeros_like(p);
  if (!(value.layout() == p.value().layout())) {
    throw PlacementError("optimizer state \"" + name_ + "\" of \"" + p.name() + "\" is " +
                         to_string(value.layout()) + ", the parameter now " +
                         to_string(p.value().layout()) +
                         "; wrap the model before the optimizer is first used");
  }
  return value;
}

const DTensor* ParameterState::find(const nn::Parameter& p) const {
  const auto it = values_.find(p.id());
  return it == values_.end() ? nullptr : &it->second;
}

void ParameterState::append_to(std::vector<Optimizer::StateTensor>& list, const nn::Parameter& p) {
  list.push_back({name_, p, of(p)});
}

bool MasterCopies::wanted(const nn::Parameter& p) { return size_of(p.value().dtype()) == 2; }

Tensor MasterCopies::begin(const nn::Parameter& p) {
  const Tensor& value = p.value().local_tensor();
  if (!wanted(p)) return value;
  const Tensor& copy = copies_.of(p).local_tensor();
  if (value.dtype() == DType::kBFloat16) {
    take_changed<BFloat16>(value, copy);
  } else {
    take_changed<Float16>(value, copy);
  }
  return copy;
}

void MasterCopies::end(const nn::Parameter& p) {
  if (wanted(p)) kernels::cast(copies_.of(p).local_tensor(), p.value().local_tensor());
}

void MasterCopies::append_to(std::vector<Optimizer::StateTensor>& list, const nn::Parameter& p) {
  if (!wanted(p)) return;
  if (p.value().has_local()) begin(p);
  copies_.append_to(list, p);
}

}  // namespace dtensor::optim
