#include "dtensor/ops/cpu/elementwise.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/map.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

template <class Vector>
inline constexpr int kLanesOf = sizeof(Vector) / sizeof(Vector{}[0]);

// 1 / (1 + exp(-x))
template <class Vector>
DTENSOR_INLINE Vector sigmoid(const Vector& x) {
  return 1 / (1 + simd::exp<kLanesOf<Vector>>(-x));
}

template <class Fn>
Tensor unary_floating(const char* op, const Tensor& x, const Fn& fn) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating(op, x.dtype(),
                 [&](auto t) { map<decltype(t), 1, 1>(x.shape(), {&x}, {&out}, fn); });
  return out;
}

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

template <class Fn>
Tensor binary_broadcast(const char* op, const Tensor& a, const Tensor& b, const Fn& fn) {
  check_same_dtype(op, a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape());
  Tensor out = Tensor::empty(shape, a.dtype());
  visit_number(op, a.dtype(), [&](auto t) { map<decltype(t), 2, 1>(shape, {&a, &b}, {&out}, fn); });
  return out;
}

// fn(vectors, vectors, number in the type computed in)
template <class Fn>
Tensor with_number(const char* op, const Tensor& x, double number, const Fn& fn) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_number(op, x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    // An integer by way of its signed type: a negative number has no unsigned value.
    const A c = [&] {
      if constexpr (std::is_integral_v<T>) return static_cast<A>(static_cast<T>(number));
      return static_cast<A>(number);
    }();
    map<T, 1, 1>(x.shape(), {&x}, {&out}, [&](const auto& in, auto& y) { fn(in[0], y[0], c); });
  });
  return out;
}

}  // namespace

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out = Shape::filled(std::max(a.ndim(), b.ndim()), 1);
  for (int i = 1; i <= out.ndim(); ++i) {
    const int64_t m = i <= a.ndim() ? a[a.ndim() - i] : 1;
    const int64_t n = i <= b.ndim() ? b[b.ndim() - i] : 1;
    if (m != n && m != 1 && n != 1) {
      throw ArgumentError("broadcast: shapes " + to_string(a) + " and " + to_string(b) +
                          " do not fit: from the right, dims must be equal or 1");
    }
    out[out.ndim() - i] = m == 1 ? n : m;
  }
  return out;
}

Tensor add(const Tensor& a, const Tensor& b) {
  return binary_broadcast("add", a, b, [](const auto& x, auto& y) { y[0] = x[0] + x[1]; });
}
Tensor sub(const Tensor& a, const Tensor& b) {
  return binary_broadcast("sub", a, b, [](const auto& x, auto& y) { y[0] = x[0] - x[1]; });
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return binary_broadcast("mul", a, b, [](const auto& x, auto& y) { y[0] = x[0] * x[1]; });
}

Tensor scale(const Tensor& x, double factor) {
  return with_number("scale", x, factor, [](const auto& v, auto& y, auto c) { y = v * c; });
}
Tensor add_scalar(const Tensor& x, double term) {
  return with_number("add_scalar", x, term, [](const auto& v, auto& y, auto c) { y = v + c; });
}
Tensor neg(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_number("neg", x.dtype(), [&](auto t) {
    map<decltype(t), 1, 1>(x.shape(), {&x}, {&out}, [](const auto& v, auto& y) { y[0] = -v[0]; });
  });
  return out;
}

Tensor exp(const Tensor& x) {
  return unary_floating("exp", x, [](const auto& v, auto& y) {
    y[0] = simd::exp<kLanesOf<std::remove_cvref_t<decltype(v[0])>>>(v[0]);
  });
}
Tensor relu(const Tensor& x) {
  return unary_floating("relu", x, [](const auto& v, auto& y) {
    const auto zero = std::remove_cvref_t<decltype(v[0])>{};
    y[0] = v[0] < 0 ? zero : v[0];
  });
}
Tensor silu(const Tensor& x) {
  return unary_floating("silu", x, [](const auto& v, auto& y) { y[0] = v[0] * sigmoid(v[0]); });
}

Tensor relu_backward(const Tensor& g, const Tensor& x) {
  return binary_floating("relu_backward", g, x, [](const auto& v, auto& y) {
    const auto zero = std::remove_cvref_t<decltype(v[0])>{};
    y[0] = v[1] > 0 ? v[0] : zero;
  });
}
Tensor silu_backward(const Tensor& g, const Tensor& x) {
  return binary_floating("silu_backward", g, x, [](const auto& v, auto& y) {
    const auto s = sigmoid(v[1]);
    y[0] = v[0] * s * (1 + v[1] * (1 - s));
  });
}

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

void add_bias(const Tensor& y, const Tensor& bias) {
  check_same_dtype("add_bias", y, bias);
  if (y.ndim() == 0 || bias.ndim() != 1 || bias.size(0) != y.size(-1) || !y.is_contiguous()) {
    throw ArgumentError("add_bias: wants a contiguous y [...,n] and a bias [n], found " +
                        describe(y) + " and " + describe(bias));
  }
  visit_floating("add_bias", y.dtype(), [&](auto t) {
    map<decltype(t), 2, 1>(y.shape(), {&y, &bias}, {&y},
                           [](const auto& v, auto& out) { out[0] = v[0] + v[1]; });
  });
  y.storage()->bump_version();
}

}  // namespace dtensor::cpu
