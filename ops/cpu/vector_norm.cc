#include "dtensor/ops/cpu/vector_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/map.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::cpu {
namespace {

constexpr int64_t kBlock = 4096;

// What is done with every element, and with two results. Vectors go by value only where inlining is
// certain: how they are passed differs between instruction sets.
struct Squares {
  template <class W>
  DTENSOR_INLINE static W of(const W& v) {
    return v * v;
  }
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    return a + b;
  }
};
struct Magnitudes {
  template <class W>
  DTENSOR_INLINE static W of(const W& v) {
    return v < 0 ? -v : v;  // NaN stays
  }
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    return a + b;
  }
};
struct Largest : Magnitudes {
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    return simd::keep_nan(simd::larger(a, b), b);
  }
};

// Joins all elements, widened to double. Blocks are joined in order.
template <class Op>
double fold(const char* op, const Tensor& x) {
  const Tensor flat = x.contiguous();
  const int64_t n = flat.numel();
  std::vector<double> parts(static_cast<size_t>((n + kBlock - 1) / kBlock));
  visit_floating(op, x.dtype(), [&](auto t) {
    const auto* data = flat.data<decltype(t)>();
    parallel_rows(static_cast<int64_t>(parts.size()), kBlock, [&](int64_t begin, int64_t end) {
      simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<double>();
        using Vector = simd::Vec<double, kLanes>;
        for (int64_t block = begin; block < end; ++block) {
          const auto* from = data + block * kBlock;
          Vector all{};
          simd::for_lanes<kLanes>(std::min(kBlock, n - block * kBlock), [&](int64_t i, auto lanes) {
            const auto v = simd::load_part<kLanes>(from + i, lanes);
            all = Op::join(all, Op::of(__builtin_convertvector(v, Vector)));
          });
          double one = all[0];
          for (int l = 1; l < kLanes; ++l) one = Op::join(one, static_cast<double>(all[l]));
          parts[static_cast<size_t>(block)] = one;
        }
      });
    });
  });
  double result = 0;
  for (const double part : parts) result = Op::join(result, part);
  return result;
}

}  // namespace

double sum_of_squares(const Tensor& x) { return fold<Squares>("sum_of_squares", x); }
double sum_of_abs(const Tensor& x) { return fold<Magnitudes>("sum_of_abs", x); }
double max_abs(const Tensor& x) { return fold<Largest>("max_abs", x); }

void scale_in_place(const Tensor& x, double factor) {
  const Tensor work = x.contiguous();
  visit_floating("scale_in_place", x.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto c = static_cast<simd::Compute<T>>(factor);
    map<T, 1, 1>(work.shape(), {&work}, {&work},
                 [&](const auto& in, auto& out) { out[0] = in[0] * c; });
  });
  if (work.storage() != x.storage()) return kernels::copy(work, x);
  x.storage()->bump_version();
}

}  // namespace dtensor::cpu
