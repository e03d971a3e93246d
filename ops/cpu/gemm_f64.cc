#include "dtensor/ops/cpu/gemm_f64.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu::internal {
namespace {

// Rows and vectors of the sums in registers: 12 of 16 (AVX2) or 32 (AVX-512).
constexpr int kRows = 6;
constexpr int kVectors = 2;
// A block of a [kBlockRows, kBlockInner] stays in the second-level cache, a panel of b in the
// first.
constexpr int64_t kBlockInner = 256;
constexpr int64_t kBlockRows = 96;

double at(const Block<double>& x, int64_t row, int64_t column) {
  return x.data[x.op == Op::kNone ? row * x.pitch + column : column * x.pitch + row];
}

// Rows [row, row + rows) of op(a) and [inner, inner + depth) as panels of kRows, each [depth,
// kRows], padded with zeros.
void pack_rows(const Block<double>& a, int64_t row, int64_t rows, int64_t inner, int64_t depth,
               double* to) {
  for (int64_t i = 0; i < rows; i += kRows, to += depth * kRows) {
    for (int64_t r = 0; r < kRows; ++r) {
      const bool there = i + r < rows;
      for (int64_t p = 0; p < depth; ++p) {
        to[p * kRows + r] = there ? at(a, row + i + r, inner + p) : 0.0;
      }
    }
  }
}

// All columns of op(b) and [inner, inner + depth) as panels of `width`, each [depth, width], padded
// with zeros.
void pack_columns(const Block<double>& b, int64_t columns, int64_t inner, int64_t depth,
                  int64_t width, double* to) {
  for (int64_t j = 0; j < columns; j += width, to += depth * width) {
    const int64_t there = std::min(width, columns - j);
    for (int64_t p = 0; p < depth; ++p) {
      double* row = to + p * width;
      for (int64_t l = 0; l < there; ++l) row[l] = at(b, inner + p, j + l);
      std::fill(row + there, row + width, 0.0);
    }
  }
}

// f(0), f(1), ... written out, so that arrays indexed by it are registers.
template <class F, int... kIndex>
DTENSOR_INLINE void each(std::integer_sequence<int, kIndex...>, const F& f) {
  (f(std::integral_constant<int, kIndex>{}), ...);
}
using EachRow = std::make_integer_sequence<int, kRows>;
using EachVector = std::make_integer_sequence<int, kVectors>;

struct Corner {
  int64_t rows;
  int64_t columns;
  double alpha;
  double beta;
};

// One panel of a by one of b into a corner of c.
template <int kLanes>
DTENSOR_INLINE void micro(const double* a, const double* b, int64_t depth, double* c, int64_t pitch,
                          const Corner& corner) {
  using Vector = simd::Vec<double, kLanes>;
  constexpr int kWidth = kLanes * kVectors;
  Vector sum[kRows][kVectors] = {};
  for (int64_t p = 0; p < depth; ++p) {
    Vector x[kVectors];
    each(EachVector{}, [&](auto v) { x[v] = simd::load<kLanes>(b + p * kWidth + v * kLanes); });
    each(EachRow{}, [&](auto r) {
      const Vector factor = simd::splat<double, kLanes>(a[p * kRows + r]);
      each(EachVector{}, [&](auto v) { sum[r][v] += factor * x[v]; });
    });
  }
  double lines[kRows * kWidth];
  each(EachRow{}, [&](auto r) {
    each(EachVector{},
         [&](auto v) { simd::store<kLanes>(lines + r * kWidth + v * kLanes, sum[r][v]); });
  });
  for (int64_t r = 0; r < corner.rows; ++r) {
    double* out = c + r * pitch;
    for (int64_t l = 0; l < corner.columns; ++l) {
      const double old = corner.beta == 0 ? 0 : corner.beta * out[l];
      out[l] = old + corner.alpha * lines[r * kWidth + l];
    }
  }
}

template <int kLanes>
DTENSOR_INLINE void multiply(GemmSize size, const Block<double>& a, const Block<double>& b,
                             const OutBlock<double>& c, GemmScale<double> scale) {
  constexpr int64_t kWidth = kLanes * kVectors;
  const int64_t depth_most = std::min(size.k, kBlockInner);
  const int64_t rows_most = (std::min(size.m, kBlockRows) + kRows - 1) / kRows * kRows;
  std::vector<double> rows(static_cast<size_t>(rows_most * depth_most));
  std::vector<double> columns(
      static_cast<size_t>((size.n + kWidth - 1) / kWidth * kWidth * depth_most));
  for (int64_t inner = 0; inner < size.k; inner += kBlockInner) {
    const int64_t depth = std::min(kBlockInner, size.k - inner);
    const double beta = inner == 0 ? scale.beta : 1.0;
    pack_columns(b, size.n, inner, depth, kWidth, columns.data());
    for (int64_t row = 0; row < size.m; row += kBlockRows) {
      const int64_t count = std::min(kBlockRows, size.m - row);
      pack_rows(a, row, count, inner, depth, rows.data());
      for (int64_t j = 0; j < size.n; j += kWidth) {
        for (int64_t i = 0; i < count; i += kRows) {
          micro<kLanes>(rows.data() + i * depth, columns.data() + j * depth, depth,
                        c.data + (row + i) * c.pitch + j, c.pitch,
                        {std::min<int64_t>(kRows, count - i), std::min(kWidth, size.n - j),
                         scale.alpha, beta});
        }
      }
    }
  }
}

}  // namespace

void gemm_f64(GemmSize size, const Block<double>& a, const Block<double>& b,
              const OutBlock<double>& c, GemmScale<double> scale) {
  simd::dispatch(
      [&](auto isa) { multiply<decltype(isa)::template lanes<double>()>(size, a, b, c, scale); });
}

}  // namespace dtensor::cpu::internal
