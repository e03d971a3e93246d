#include "dtensor/ops/cpu/adamw.h"

#include <cmath>
#include <string>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/map.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::cpu {
namespace {

void check_like(const char* op, const Tensor& p, const Tensor& g) {
  check_same_shape(op, p, g);
  if (p.dtype() == DType::kFloat16 || !is_floating(p.dtype()) || g.dtype() == DType::kFloat16 ||
      !is_floating(g.dtype())) {
    throw ArgumentError(std::string(op) + ": wants f32, f64 or bf16, found p " + describe(p) +
                        " and g " + describe(g));
  }
}

void check_state(const char* op, const Tensor& p, const Tensor& state) {
  check_same_shape(op, p, state);
  if (state.dtype() == accumulator_of(p.dtype())) return;
  throw ArgumentError(std::string(op) + ": the state of p " + describe(p) + " is " +
                      std::string(name_of(accumulator_of(p.dtype()))) + ", found " +
                      describe(state));
}

// A tensor to be changed in place, as a contiguous one of the dtype computed in: itself where it is
// that, else a copy that write_back() puts into it.
class InPlace {
 public:
  InPlace(const Tensor& t, DType dtype) : target_(t), work_(t.to(dtype).contiguous()) {}
  const Tensor& tensor() const { return work_; }
  void write_back() const {
    if (work_.storage() != target_.storage()) return kernels::cast(work_, target_);
    target_.storage()->bump_version();
  }

 private:
  Tensor target_;
  Tensor work_;
};

template <class Vector>
inline constexpr int kLanesOf = sizeof(Vector) / sizeof(Vector{}[0]);

}  // namespace

void adamw_step(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v,
                const AdamWStep& step) {
  check_like("adamw_step", p, g);
  check_state("adamw_step", p, m);
  check_state("adamw_step", p, v);
  const DType dtype = accumulator_of(p.dtype());
  const InPlace param(p, dtype);
  const InPlace first(m, dtype);
  const InPlace second(v, dtype);
  const Tensor grad = g.to(dtype);
  const auto steps = static_cast<double>(step.step);
  const double correction1 = 1 - std::pow(step.beta1, steps);
  const double correction2 = 1 - std::pow(step.beta2, steps);
  const auto run = [&](auto zero) {
    using A = decltype(zero);
    const A decay = static_cast<A>(1 - step.lr * step.weight_decay);
    const A rest1 = static_cast<A>(1 - step.beta1);
    const A beta2 = static_cast<A>(step.beta2);
    const A rest2 = static_cast<A>(1 - step.beta2);
    const A eps = static_cast<A>(step.eps);
    const A size = static_cast<A>(step.lr / correction1);
    const A root = static_cast<A>(1 / std::sqrt(correction2));
    map<A, 4, 3>(p.shape(), {&param.tensor(), &grad, &first.tensor(), &second.tensor()},
                 {&param.tensor(), &first.tensor(), &second.tensor()}, [&](const auto& x, auto& y) {
                   using Vector = std::remove_cvref_t<decltype(x[0])>;
                   y[1] = x[2] + rest1 * (x[1] - x[2]);
                   y[2] = beta2 * x[3] + rest2 * x[1] * x[1];
                   const Vector deviation = simd::sqrt<kLanesOf<Vector>>(y[2]) * root + eps;
                   y[0] = x[0] * decay - size * (y[1] / deviation);
                 });
  };
  dtype == DType::kFloat64 ? run(double{}) : run(float{});
  param.write_back();
  first.write_back();
  second.write_back();
}

void sgd_step(const Tensor& p, const Tensor& g, const Tensor& velocity, const SgdStep& step) {
  check_like("sgd_step", p, g);
  if (velocity.defined()) check_state("sgd_step", p, velocity);
  if (!velocity.defined() && step.momentum != 0) {
    throw ArgumentError("sgd_step: momentum wants a velocity tensor");
  }
  const DType dtype = accumulator_of(p.dtype());
  const InPlace param(p, dtype);
  const InPlace speed(velocity.defined() ? velocity : p, dtype);
  const Tensor grad = g.to(dtype);
  const auto run = [&](auto zero) {
    using A = decltype(zero);
    const A lr = static_cast<A>(step.lr);
    const A momentum = static_cast<A>(step.momentum);
    const A decay = static_cast<A>(step.weight_decay);
    if (velocity.defined()) {
      map<A, 3, 2>(p.shape(), {&param.tensor(), &grad, &speed.tensor()},
                   {&param.tensor(), &speed.tensor()}, [&](const auto& x, auto& y) {
                     y[1] = momentum * x[2] + (x[1] + decay * x[0]);
                     y[0] = x[0] - lr * y[1];
                   });
    } else {
      map<A, 2, 1>(p.shape(), {&param.tensor(), &grad}, {&param.tensor()},
                   [&](const auto& x, auto& y) { y[0] = x[0] - lr * (x[1] + decay * x[0]); });
    }
  };
  dtype == DType::kFloat64 ? run(double{}) : run(float{});
  param.write_back();
  if (velocity.defined()) speed.write_back();
}

}  // namespace dtensor::cpu
