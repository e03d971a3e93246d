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

// |v|, by way of the sign bit: NaN stays NaN.
template <class Vector>
DTENSOR_INLINE Vector magnitude(const Vector& v) {
  return v < 0 ? -v : v;
}

// Joins f(x) over all elements, widened to double: `f` and `join` work on vectors of it. Blocks are
// joined in order.
template <class F, class Join>
double fold(const char* op, const Tensor& x, const F& f, const Join& join) {
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
            all = join(all, f(__builtin_convertvector(v, Vector)));
          });
          double one = all[0];
          for (int l = 1; l < kLanes; ++l) one = join(one, static_cast<double>(all[l]));
          parts[static_cast<size_t>(block)] = one;
        }
      });
    });
  });
  double result = 0;
  for (const double part : parts) result = join(result, part);
  return result;
}

}  // namespace

double sum_of_squares(const Tensor& x) {
  return fold(
      "sum_of_squares", x, [](const auto& v) { return v * v; },
      [](const auto& a, const auto& b) { return a + b; });
}

double sum_of_abs(const Tensor& x) {
  return fold(
      "sum_of_abs", x, [](const auto& v) { return magnitude(v); },
      [](const auto& a, const auto& b) { return a + b; });
}

double max_abs(const Tensor& x) {
  return fold(
      "max_abs", x, [](const auto& v) { return magnitude(v); },
      [](const auto& a, const auto& b) { return simd::keep_nan(simd::larger(a, b), b); });
}

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
