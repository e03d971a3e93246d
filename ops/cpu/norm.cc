#include "dtensor/ops/cpu/norm.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

void check_weight(const char* op, const Tensor& x, const Tensor& w) {
  if (x.ndim() == 0 || w.shape() != Shape{x.shape().back()} ||
      (w.dtype() != x.dtype() && w.dtype() != accumulator_of(x.dtype()))) {
    throw ArgumentError(std::string(op) + ": wants x [...,h] and w [h] of its dtype, found " +
                        describe(x) + " and " + describe(w));
  }
}

void check_gradient(const char* op, const Tensor& g, const Tensor& x) {
  check_same_dtype(op, g, x);
  check_same_shape(op, g, x);
  if (x.ndim() == 0) throw ArgumentError(std::string(op) + ": x is a scalar; it wants [...,h]");
}

template <int kLanes, class T, class A = simd::Compute<T>>
DTENSOR_INLINE A sum_of_squares(const T* x, int64_t n) {
  simd::Vec<A, kLanes> sum{};
  simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
    const auto v = simd::load_part<kLanes>(x + i, lanes);
    sum += v * v;
  });
  return simd::sum_lanes<kLanes, A>(sum);
}

template <class A>
DTENSOR_INLINE A inverse_rms(A sum_of_squares, int64_t n, double eps) {
  return 1 / std::sqrt(sum_of_squares / static_cast<A>(n) + static_cast<A>(eps));
}

// One row of dx.
template <int kLanes, class T, class A>
DTENSOR_INLINE void row_dx(const T* g, const T* x, const A* w, A r, int64_t n, T* dx) {
  simd::Vec<A, kLanes> dot{};
  simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
    dot += simd::load_part<kLanes>(g + i, lanes) * simd::load_part<kLanes>(w + i, lanes) *
           simd::load_part<kLanes>(x + i, lanes);
  });
  const A mean = simd::sum_lanes<kLanes, A>(dot) / static_cast<A>(n);
  const A c = r * r * mean;
  simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
    const auto gw = simd::load_part<kLanes>(g + i, lanes) * simd::load_part<kLanes>(w + i, lanes);
    simd::store_part<kLanes>(dx + i, r * (gw - c * simd::load_part<kLanes>(x + i, lanes)), lanes);
  });
}

// One row's part of dw.
template <int kLanes, class T, class A>
DTENSOR_INLINE void row_dw(const T* g, const T* x, A r, int64_t n, A* dw) {
  simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
    const auto part = simd::load_part<kLanes>(g + i, lanes) * simd::load_part<kLanes>(x + i, lanes);
    simd::store_part<kLanes>(dw + i, simd::load_part<kLanes>(dw + i, lanes) + part * r, lanes);
  });
}

// Rows are added in blocks of this many, and the blocks' sums in double: the same order for every
// number of threads.
constexpr int64_t kBlock = 64;

template <class T>
void add_blocks(const std::vector<simd::Compute<T>>& parts, int64_t n, T* dw) {
  std::vector<double> sum(static_cast<size_t>(n), 0.0);
  for (size_t at = 0; at < parts.size(); at += sum.size()) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[at + i];
  }
  for (size_t i = 0; i < sum.size(); ++i) dw[i] = T(static_cast<simd::Compute<T>>(sum[i]));
}

// dx and dw, each where it is wanted (not null). w is only read for dx.
template <class T>
void backward(const Tensor& g, const Tensor& x, const simd::Compute<T>* w, double eps, T* dx,
              T* dw) {
  using A = simd::Compute<T>;
  const Rows<T> gs(g);
  const Rows<T> xs(x);
  const int64_t n = xs.width();
  if (n == 0) return;
  const int64_t blocks = (xs.count() + kBlock - 1) / kBlock;
  std::vector<A> parts(dw != nullptr ? static_cast<size_t>(blocks * n) : 0);
  parallel_rows(blocks, kBlock * n, [&](int64_t begin, int64_t end) {
    simd::dispatch([&](auto isa) {
      constexpr int kLanes = decltype(isa)::template lanes<A>();
      const int64_t last = std::min(xs.count(), end * kBlock);
      for (int64_t row = begin * kBlock; row < last; ++row) {
        const A r = inverse_rms(sum_of_squares<kLanes>(xs[row], n), n, eps);
        if (dx != nullptr) row_dx<kLanes>(gs[row], xs[row], w, r, n, dx + row * n);
        if (dw != nullptr) {
          row_dw<kLanes>(gs[row], xs[row], r, n, parts.data() + row / kBlock * n);
        }
      }
    });
  });
  if (dw != nullptr) add_blocks<T>(parts, n, dw);
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& w, double eps) {
  check_weight("rms_norm", x, w);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating("rms_norm", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Rows<T> rows(x);
    const Tensor weight = w.to(kDTypeOf<A>).contiguous();
    const A* scale = weight.data<A>();
    T* y = out.data<T>();
    const int64_t n = rows.width();
    parallel_rows(rows.count(), n, [&](int64_t begin, int64_t end) {
      simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<A>();
        for (int64_t row = begin; row < end; ++row) {
          const T* from = rows[row];
          const A r = inverse_rms(sum_of_squares<kLanes>(from, n), n, eps);
          simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
            const auto v = simd::load_part<kLanes>(from + i, lanes) * r;
            simd::store_part<kLanes>(y + row * n + i, v * simd::load_part<kLanes>(scale + i, lanes),
                                     lanes);
          });
        }
      });
    });
  });
  return out;
}

Tensor rms_norm_dx(const Tensor& g, const Tensor& x, const Tensor& w, double eps) {
  check_gradient("rms_norm_dx", g, x);
  check_weight("rms_norm_dx", x, w);
  Tensor dx = Tensor::empty(x.shape(), x.dtype());
  visit_floating("rms_norm_dx", x.dtype(), [&](auto t) {
    using T = decltype(t);
    const Tensor weight = w.to(kDTypeOf<simd::Compute<T>>).contiguous();
    backward<T>(g, x, weight.data<simd::Compute<T>>(), eps, dx.data<T>(), nullptr);
  });
  return dx;
}

Tensor rms_norm_dw(const Tensor& g, const Tensor& x, double eps) {
  check_gradient("rms_norm_dw", g, x);
  Tensor dw = Tensor::empty({x.shape().back()}, x.dtype());
  visit_floating("rms_norm_dw", x.dtype(), [&](auto t) {
    using T = decltype(t);
    backward<T>(g, x, nullptr, eps, nullptr, dw.data<T>());
  });
  return dw;
}

RmsNormGrads rms_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, double eps) {
  check_gradient("rms_norm_backward", g, x);
  check_weight("rms_norm_backward", x, w);
  RmsNormGrads out{Tensor::empty(x.shape(), x.dtype()),
                   Tensor::empty({x.shape().back()}, x.dtype())};
  visit_floating("rms_norm_backward", x.dtype(), [&](auto t) {
    using T = decltype(t);
    const Tensor weight = w.to(kDTypeOf<simd::Compute<T>>).contiguous();
    backward<T>(g, x, weight.data<simd::Compute<T>>(), eps, out.dx.data<T>(), out.dw.data<T>());
  });
  return out;
}

}  // namespace dtensor::cpu
