#include "dtensor/ops/cpu/elementwise.h"

#include <string>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/map.h"
#include "dtensor/ops/cpu/simd_math.h"

namespace dtensor::cpu {
namespace {

using simd::sigmoid;

template <class Fn>
Tensor binary_floating(const char* op, const Tensor& a, const Tensor& b, const Fn& fn) {
  check_same_dtype(op, a, b);
  check_same_shape(op, a, b);
  Tensor out = Tensor::empty(a.shape(), a.dtype());
  visit_floating(op, a.dtype(), [&](auto t) {
    map<decltype(t), 2, 1>(a.shape(), {&a, &b}, {&out}, fn);
  });
  return out;
}

}  // namespace

Tensor silu_mul(const Tensor& a, const Tensor& b) {
  return binary_floating("silu_mul", a, b,
                         [](const auto& v, auto& y) { y[0] = v[0] * sigmoid(v[0]) * v[1]; });
}
SiluMulGrads silu_mul_backward(const Tensor& g, const Tensor& a, const Tensor& b) {
  check_same_dtype("silu_mul_backward", a, b);
  check_same_dtype("silu_mul_backward", a, g);
  check_same_shape("silu_mul_backward", a, b);
  check_same_shape("silu_mul_backward", a, g);
  SiluMulGrads out{Tensor::empty(a.shape(), a.dtype()), Tensor::empty(a.shape(), a.dtype())};
  visit_floating("silu_mul_backward", a.dtype(), [&](auto t) {
    map<decltype(t), 3, 2>(a.shape(), {&g, &a, &b}, {&out.da, &out.db}, [](const auto& v, auto& y) {
      const auto s = sigmoid(v[1]);
      y[0] = v[0] * v[2] * s * (1 + v[1] * (1 - s));
      y[1] = v[0] * v[1] * s;
    });
  });
  return out;
}

}  // namespace dtensor::cpu
