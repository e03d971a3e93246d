#include "dtensor/ops/cpu/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dtensor/ops/cpu/class_rows.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/rows.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

// A contiguous vector of the type computed in, or ones (zeros) where there is none.
Tensor vector_or(const Tensor& t, int64_t n, DType dtype, double otherwise) {
  if (!t.defined()) return Tensor::full({n}, otherwise, dtype);
  if (t.shape() != Shape{n}) {
    throw ArgumentError("layer_norm: x has rows of " + std::to_string(n) + ", found weight " +
                        describe(t));
  }
  return t.to(dtype).contiguous();
}

// The statistics of rows as arrays; a missing mean is 0.
template <class A>
struct Stats {
  Tensor mean_memory;
  Tensor inverse_memory;
  const A* mean;
  const A* inverse;

  explicit Stats(const RowStats& s)
      : mean_memory(s.mean.defined() ? s.mean.contiguous()
                                     : Tensor::zeros(s.inverse.shape(), s.inverse.dtype())),
        inverse_memory(s.inverse.contiguous()),
        mean(mean_memory.data<A>()),
        inverse(inverse_memory.data<A>()) {}
};

template <int kLanes, class T, class A = simd::Compute<T>>
DTENSOR_INLINE A sum_of(const T* x, int64_t n) {
  simd::Vec<A, kLanes> sum{};
  simd::for_lanes<kLanes>(
      n, [&](int64_t i, auto lanes) { sum += simd::load_part<kLanes>(x + i, lanes); });
  return simd::sum_lanes<kLanes, A>(sum);
}

// Lanes beyond the end are not counted.
template <int kLanes, class T, class A = simd::Compute<T>>
DTENSOR_INLINE A squares_of(const T* x, int64_t n, A mean) {
  simd::Vec<A, kLanes> sum{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto d = simd::load<kLanes>(x + i) - mean;
    sum += d * d;
  }
  A all = simd::sum_lanes<kLanes, A>(sum);
  for (; i < n; ++i) {
    const A d = static_cast<A>(x[i]) - mean;
    all += d * d;
  }
  return all;
}

template <class A>
A inverse_of(A squares, int64_t n, double eps) {
  return 1 / std::sqrt(squares / static_cast<A>(n) + static_cast<A>(eps));
}

// f(isa, from, row) -> a number for each row of x.
template <class F>
Tensor per_row(const char* op, const Tensor& x, const F& f) {
  const Tensor out = Tensor::empty(rows_shape(op, x), accumulator_of(x.dtype()));
  visit_floating(op, x.dtype(), [&](auto t) {
    using T = decltype(t);
    auto* to = out.data<simd::Compute<T>>();
    for_rows<T>(
        x, [&](auto isa, const Rows<T>& rows, int64_t row) { to[row] = f(isa, rows[row], row); });
  });
  return out;
}

}  // namespace

RowStats row_stats(const Tensor& x, double eps) {
  const Shape shape = rows_shape("layer_norm", x);
  const DType dtype = accumulator_of(x.dtype());
  RowStats out{Tensor::empty(shape, dtype), Tensor::empty(shape, dtype)};
  visit_floating("layer_norm", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    A* mean = out.mean.data<A>();
    A* inverse = out.inverse.data<A>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      const int64_t n = rows.width();
      mean[row] = sum_of<kLanes>(rows[row], n) / static_cast<A>(n);
      inverse[row] = inverse_of(squares_of<kLanes>(rows[row], n, mean[row]), n, eps);
    });
  });
  return out;
}

Tensor row_sums(const Tensor& x) {
  const int64_t n = x.ndim() > 0 ? x.shape().back() : 0;
  return per_row("row_sums", x, [n](auto isa, const auto* from, int64_t) {
    using T = std::remove_cvref_t<decltype(*from)>;
    return sum_of<kLanesOf<decltype(isa), T>>(from, n);
  });
}

Tensor row_squares(const Tensor& x, const Tensor& mean) {
  const int64_t n = x.ndim() > 0 ? x.shape().back() : 0;
  const Tensor means = mean.defined() ? mean.contiguous() : Tensor();
  return per_row("row_squares", x, [&](auto isa, const auto* from, int64_t row) {
    using T = std::remove_cvref_t<decltype(*from)>;
    using A = simd::Compute<T>;
    const A m = means.defined() ? means.data<A>()[row] : A{0};
    return squares_of<kLanesOf<decltype(isa), T>>(from, n, m);
  });
}

Tensor inverse_root(const Tensor& squares, int64_t n, double eps) {
  const Tensor from = squares.contiguous();
  const Tensor out = Tensor::empty(squares.shape(), squares.dtype());
  visit_floating("inverse_root", squares.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    for (int64_t i = 0; i < out.numel(); ++i) {
      out.data<T>()[i] = T(inverse_of(static_cast<A>(from.data<T>()[i]), n, eps));
    }
  });
  return out;
}

Tensor layer_norm(const Tensor& x, const RowStats& stats, const Tensor& w, const Tensor& b) {
  check_statistic("layer_norm", x, stats.inverse);
  const Tensor out = Tensor::empty(x.shape(), x.dtype());
  visit_floating("layer_norm", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Stats<A> s(stats);
    const int64_t n = x.shape().back();
    const Tensor weight = vector_or(w, n, kDTypeOf<A>, 1.0);
    const Tensor bias = vector_or(b, n, kDTypeOf<A>, 0.0);
    const A* scale = weight.data<A>();
    const A* shift = bias.data<A>();
    T* y = out.data<T>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      const A mean = s.mean[row];
      const A inverse = s.inverse[row];
      const T* from = rows[row];
      simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
        const auto u = (simd::load_part<kLanes>(from + i, lanes) - mean) * inverse;
        simd::store_part<kLanes>(y + row * n + i,
                                 u * simd::load_part<kLanes>(scale + i, lanes) +
                                     simd::load_part<kLanes>(shift + i, lanes),
                                 lanes);
      });
    });
  });
  return out;
}

RowSums layer_norm_sums(const Tensor& g, const Tensor& x, const RowStats& stats, const Tensor& w) {
  check_same_dtype("layer_norm_dx", g, x);
  check_same_shape("layer_norm_dx", g, x);
  check_statistic("layer_norm_dx", x, stats.inverse);
  const Shape& shape = stats.inverse.shape();
  const DType dtype = stats.inverse.dtype();
  RowSums out{stats.mean.defined() ? Tensor::empty(shape, dtype) : Tensor(),
              Tensor::empty(shape, dtype)};
  visit_floating("layer_norm_dx", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Stats<A> s(stats);
    const int64_t n = x.shape().back();
    const Tensor weight = vector_or(w, n, kDTypeOf<A>, 1.0);
    const A* scale = weight.data<A>();
    const Rows<T> gs(g);
    A* sums = out.v.defined() ? out.v.data<A>() : nullptr;
    A* products = out.vu.data<A>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      simd::Vec<A, kLanes> sum{};
      simd::Vec<A, kLanes> product{};
      simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
        const auto v =
            simd::load_part<kLanes>(gs[row] + i, lanes) * simd::load_part<kLanes>(scale + i, lanes);
        sum += v;
        product +=
            v * ((simd::load_part<kLanes>(rows[row] + i, lanes) - s.mean[row]) * s.inverse[row]);
      });
      if (sums != nullptr) sums[row] = simd::sum_lanes<kLanes, A>(sum);
      products[row] = simd::sum_lanes<kLanes, A>(product);
    });
  });
  return out;
}

Tensor layer_norm_dx(const Tensor& g, const Tensor& x, const RowStats& stats, const Tensor& w,
                     const RowSums& sums, int64_t n_whole) {
  const Tensor out = Tensor::empty(x.shape(), x.dtype());
  const Tensor all_v = sums.v.defined() ? sums.v.contiguous() : Tensor();
  const Tensor all_vu = sums.vu.contiguous();
  visit_floating("layer_norm_dx", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Stats<A> s(stats);
    const int64_t n = x.shape().back();
    const Tensor weight = vector_or(w, n, kDTypeOf<A>, 1.0);
    const A* scale = weight.data<A>();
    const Rows<T> gs(g);
    const A* sum = all_v.defined() ? all_v.data<A>() : nullptr;
    const A* product = all_vu.data<A>();
    T* dx = out.data<T>();
    for_rows<T>(x, [&](auto isa, const Rows<T>& rows, int64_t row) {
      constexpr int kLanes = kLanesOf<decltype(isa), T>;
      const A off = sum != nullptr ? sum[row] / static_cast<A>(n_whole) : A{0};
      const A along = product[row] / static_cast<A>(n_whole);
      const A mean = s.mean[row];
      const A inverse = s.inverse[row];
      simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
        const auto v =
            simd::load_part<kLanes>(gs[row] + i, lanes) * simd::load_part<kLanes>(scale + i, lanes);
        const auto u = (simd::load_part<kLanes>(rows[row] + i, lanes) - mean) * inverse;
        simd::store_part<kLanes>(dx + row * n + i, (v - off - u * along) * inverse, lanes);
      });
    });
  });
  return out;
}

LayerNormGrads layer_norm_dw(const Tensor& g, const Tensor& x, const RowStats& stats) {
  check_same_dtype("layer_norm_dw", g, x);
  check_same_shape("layer_norm_dw", g, x);
  check_statistic("layer_norm_dw", x, stats.inverse);
  // Rows are added in blocks of this many, and the blocks' sums in double: the same order for every
  // number of threads.
  constexpr int64_t kBlock = 64;
  const int64_t n = x.shape().back();
  LayerNormGrads out{Tensor::empty({n}, x.dtype()), Tensor::empty({n}, x.dtype())};
  visit_floating("layer_norm_dw", x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const Stats<A> s(stats);
    const Rows<T> gs(g);
    const Rows<T> xs(x);
    const int64_t blocks = (xs.count() + kBlock - 1) / kBlock;
    std::vector<A> parts(static_cast<size_t>(blocks * 2 * n));
    parallel_rows(blocks, kBlock * n, [&](int64_t begin, int64_t end) {
      simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<A>();
        const int64_t last = std::min(xs.count(), end * kBlock);
        for (int64_t row = begin * kBlock; row < last; ++row) {
          A* dw = parts.data() + row / kBlock * 2 * n;
          A* db = dw + n;
          simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
            const auto v = simd::load_part<kLanes>(gs[row] + i, lanes);
            const auto u =
                (simd::load_part<kLanes>(xs[row] + i, lanes) - s.mean[row]) * s.inverse[row];
            simd::store_part<kLanes>(dw + i, simd::load_part<kLanes>(dw + i, lanes) + v * u, lanes);
            simd::store_part<kLanes>(db + i, simd::load_part<kLanes>(db + i, lanes) + v, lanes);
          });
        }
      });
    });
    for (int64_t i = 0; i < n; ++i) {
      double dw = 0;
      double db = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        dw += parts[static_cast<size_t>(b * 2 * n + i)];
        db += parts[static_cast<size_t>(b * 2 * n + n + i)];
      }
      out.dw.data<T>()[i] = T(static_cast<A>(dw));
      out.db.data<T>()[i] = T(static_cast<A>(db));
    }
  });
  return out;
}

}  // namespace dtensor::cpu
