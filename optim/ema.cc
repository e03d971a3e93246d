#include "dtensor/optim/ema.h"

#include <string>

#include "dtensor/base/error.h"
#include "dtensor/optim/distinct.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::optim {
namespace {

DType average_dtype(DType parameter) {
  return parameter == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// A copy of the value in the dtype of averages, in the parameter's memory.
DTensor average_of(const nn::Parameter& p) {
  const nn::MemoryOf there(p);
  const DTensor& value = p.value();
  const DType dtype = average_dtype(value.dtype());
  if (!value.has_local()) return DTensor(dtype, value.layout(), value.mesh());
  const Tensor& local = value.local_tensor();
  const Tensor copy = local.dtype() == dtype ? local.clone() : local.to(dtype);
  return value.mesh().defined() ? DTensor(copy, value.layout(), value.mesh()) : DTensor(copy);
}

template <class T>
void move_towards(const Tensor& average, const Tensor& value, double decay) {
  T* a = average.data<T>();
  const T* v = value.data<T>();
  const auto keep = static_cast<T>(decay);
  const auto take = static_cast<T>(1.0 - decay);
  for (int64_t i = 0; i < average.numel(); ++i) a[i] = keep * a[i] + take * v[i];
  average.storage()->bump_version();
}

// Rounded where the dtypes differ.
void write(const Tensor& src, const Tensor& dst) {
  src.dtype() == dst.dtype() ? kernels::copy(src, dst) : kernels::cast(src, dst);
}

}  // namespace

Ema::Ema(const std::vector<nn::Parameter>& parameters, double decay)
    : decay(decay), parameters_(distinct(parameters)) {
  if (!(decay >= 0.0 && decay <= 1.0)) {
    throw ArgumentError("Ema: a decay of " + std::to_string(decay) + "; give one in [0, 1]");
  }
  for (const nn::Parameter& p : parameters_) averages_.push_back(average_of(p));
}

void Ema::check_placement(const nn::Parameter& p, const DTensor& average) const {
  if (average.layout() == p.value().layout()) return;
  throw PlacementError("Ema: the average of \"" + p.name() + "\" is " +
                       to_string(average.layout()) + ", the parameter now " +
                       to_string(p.value().layout()) + "; wrap the model before the Ema is made");
}

void Ema::update() {
  for (size_t i = 0; i < parameters_.size(); ++i) check_placement(parameters_[i], averages_[i]);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const DTensor& value = parameters_[i].value();
    if (!value.has_local()) continue;
    const Tensor& average = averages_[i].local_tensor();
    const Tensor now = value.local_tensor().to(average.dtype()).contiguous();
    if (average.dtype() == DType::kFloat64) {
      move_towards<double>(average, now, decay);
    } else {
      move_towards<float>(average, now, decay);
    }
  }
}

void Ema::with_averages(const std::function<void()>& f) {
  for (size_t i = 0; i < parameters_.size(); ++i) check_placement(parameters_[i], averages_[i]);
  std::vector<Tensor> before;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const DTensor& value = parameters_[i].value();
    before.push_back(value.has_local() ? value.local_tensor().clone() : Tensor());
  }
  const auto restore = [&] {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const DTensor& value = parameters_[i].value();
      if (value.has_local()) kernels::copy(before[i], value.local_tensor());
    }
  };
  try {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const DTensor& value = parameters_[i].value();
      if (value.has_local()) write(averages_[i].local_tensor(), value.local_tensor());
    }
    f();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

std::vector<Optimizer::StateTensor> Ema::state() {
  std::vector<Optimizer::StateTensor> list;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    list.push_back({"ema", parameters_[i], averages_[i]});
  }
  return list;
}

}  // namespace dtensor::optim
