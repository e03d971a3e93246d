#include "dtensor/ops/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "dtensor/ops/cpu/attention_backward.h"
#include "dtensor/ops/cpu/attention_heads.h"
#include "dtensor/ops/cpu/block_gemm.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"

namespace dtensor::cpu {
namespace {

using internal::AttentionSizes;
using internal::Heads;
using internal::KeyLimit;
using internal::kKeyTile;
using internal::kQueryTile;
using internal::ScoreMask;

// Rows of queries that share their keys: positions of one head, or the heads of one position.
template <class A>
struct QueryTile {
  const A* q;
  int64_t pitch;
  int64_t rows;
  int64_t b, g, r;   // of the first row
  int64_t position;  // of the first row
  int64_t step;      // of positions from row to row: 1, or 0 where rows are heads
  A* out;
  int64_t out_pitch;
  A* lse;
  int64_t lse_pitch;
};

template <class A>
class Forward {
 public:
  // Tiles have up to `rows` rows.
  Forward(const AttentionSizes& sizes, KeyLimit limit, const ScoreMask<A>& mask, int64_t rows)
      : sizes_(sizes),
        limit_(limit),
        mask_(mask),
        scores_(static_cast<size_t>(rows * kKeyTile)),
        sum_(static_cast<size_t>(rows * sizes.d)),
        most_(static_cast<size_t>(rows)),
        total_(static_cast<size_t>(rows)) {}

  // Keys and values of type A, or of another one, of which each tile is converted.
  template <class T>
  void run(const QueryTile<A>& tile, const T* k, int64_t k_pitch, const T* v, int64_t v_pitch) {
    std::ranges::fill(most_, -std::numeric_limits<A>::infinity());
    std::ranges::fill(total_, A{0});
    std::ranges::fill(sum_, A{0});
    const int64_t visible = limit_(tile.position + (tile.rows - 1) * tile.step, 0, sizes_.s);
    const auto scale = static_cast<A>(sizes_.scale);
    for (int64_t first = 0; first < visible; first += kKeyTile) {
      const int64_t keys = std::min(kKeyTile, visible - first);
      Block<A> rows = computed(k + first * k_pitch, k_pitch, keys);
      rows.op = Op::kTranspose;
      block_gemm({tile.rows, keys, sizes_.d}, Block<A>{tile.q, tile.pitch}, rows,
                 OutBlock<A>{scores_.data(), kKeyTile}, {.alpha = scale});
      if (mask_.defined()) {
        for (int64_t i = 0; i < tile.rows; ++i) {
          mask_.apply({tile.b, tile.g, tile.r + i * (1 - tile.step), tile.position + i * tile.step},
                      first, keys, scores_.data() + i * kKeyTile);
        }
      }
      simd::dispatch([&](auto isa) {
        for (int64_t i = 0; i < tile.rows; ++i) {
          softmax_row<decltype(isa)>(i, limit_(tile.position + i * tile.step, first, keys), keys);
        }
      });
      block_gemm({tile.rows, sizes_.d, keys}, Block<A>{scores_.data(), kKeyTile},
                 computed(v + first * v_pitch, v_pitch, keys), OutBlock<A>{sum_.data(), sizes_.d},
                 {.beta = 1});
    }
    finish(tile);
  }

 private:
  // `count` rows in the type computed in, until the next call.
  template <class T>
  Block<A> computed(const T* from, int64_t pitch, int64_t count) {
    if constexpr (std::is_same_v<T, A>) {
      return {from, pitch};
    } else {
      converted_.resize(static_cast<size_t>(count * sizes_.d));
      A* to = converted_.data();
      simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<A>();
        for (int64_t i = 0; i < count; ++i) {
          simd::for_lanes<kLanes>(sizes_.d, [&](int64_t c, auto lanes) {
            simd::store_part<kLanes>(to + i * sizes_.d + c,
                                     simd::load_part<kLanes>(from + i * pitch + c, lanes), lanes);
          });
        }
      });
      return {to, sizes_.d};
    }
  }

  // Scores of row i become exp(score - maximum so far), and what the row has summed up before is
  // brought to that maximum.
  template <class Isa>
  DTENSOR_INLINE void softmax_row(int64_t i, int64_t seen, int64_t keys) {
    constexpr int kLanes = Isa::template lanes<A>();
    A* row = scores_.data() + i * kKeyTile;
    A& most = most_[static_cast<size_t>(i)];
    A& total = total_[static_cast<size_t>(i)];
    // Whole vectors: lanes beyond the keys that are seen add exp(-inf) = 0.
    const int64_t whole = (seen + kLanes - 1) / kLanes * kLanes;
    std::fill(row + seen, row + whole, -std::numeric_limits<A>::infinity());
    if (whole < keys) std::fill(row + whole, row + keys, A{0});
    if (seen == 0) return;
    const A before = most;
    auto lanes_most = simd::splat<A, kLanes>(before);
    for (int64_t j = 0; j < whole; j += kLanes) {
      lanes_most = simd::larger(lanes_most, simd::load<kLanes>(row + j));
    }
    const A max = simd::max_lanes<kLanes, A>(lanes_most);
    if (max == -std::numeric_limits<A>::infinity()) {  // a mask hides all of them
      std::fill(row, row + whole, A{0});
      return;
    }
    simd::Vec<A, kLanes> add{};
    for (int64_t j = 0; j < whole; j += kLanes) {
      const auto e = simd::exp<kLanes>(simd::load<kLanes>(row + j) - max);
      simd::store<kLanes>(row + j, e);
      add += e;
    }
    most = max;
    const A shrink = std::exp(before - max);
    total = total * shrink + simd::sum_lanes<kLanes, A>(add);
    if (shrink == 1) return;
    A* sum = sum_.data() + i * sizes_.d;
    for (int64_t c = 0; c < sizes_.d; ++c) sum[c] *= shrink;
  }

  void finish(const QueryTile<A>& tile) {
    for (int64_t i = 0; i < tile.rows; ++i) {
      const A total = total_[static_cast<size_t>(i)];
      const A factor = total == 0 ? 0 : 1 / total;
      const A* from = sum_.data() + i * sizes_.d;
      A* to = tile.out + i * tile.out_pitch;
      for (int64_t c = 0; c < sizes_.d; ++c) to[c] = from[c] * factor;
      tile.lse[i * tile.lse_pitch] = most_[static_cast<size_t>(i)] + std::log(total);
    }
  }

  AttentionSizes sizes_;
  KeyLimit limit_;
  const ScoreMask<A>& mask_;
  std::vector<A> scores_;
  std::vector<A> sum_;    // of exp(score - most) v
  std::vector<A> most_;   // the largest score so far
  std::vector<A> total_;  // the sum of exp(score - most)
  std::vector<A> converted_;
};

// T is the type of the keys and values that are read: A, or what the tensors have.
template <class A, class T>
void forward(const AttentionSizes& n, KeyLimit limit, const ScoreMask<A>& mask,
             const Tensor& q_tensor, const Tensor& k_tensor, const Tensor& v_tensor, A* out,
             A* lse) {
  const Heads<A> q(q_tensor);
  const Heads<T> k(k_tensor);
  const Heads<T> v(v_tensor);
  const auto flat = [&](int64_t b, int64_t t, int64_t g, int64_t r) {
    return ((b * n.t + t) * n.g + g) * n.r + r;
  };
  // Generation: one position, whose heads read the keys together.
  const bool together = n.t == 1 && n.r > 1 && n.r <= kQueryTile && q.heads_have_pitch();
  const int64_t tiles = together ? 1 : (n.t + kQueryTile - 1) / kQueryTile;
  const int64_t heads = together ? 1 : n.r;
  const int64_t most_rows = together ? n.r : std::min(kQueryTile, n.t);
  parallel_for(n.b * n.g * heads * tiles, 1, [&](int64_t begin, int64_t end) {
    Forward<A> work(n, limit, mask, most_rows);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t t = task % tiles * kQueryTile;
      const int64_t r = task / tiles % heads;
      const int64_t g = task / tiles / heads % n.g;
      const int64_t b = task / tiles / heads / n.g;
      QueryTile<A> tile;
      tile.q = q.at(b, t, g, r);
      tile.pitch = together ? q.head_pitch() : q.pitch();
      tile.rows = together ? n.r : std::min(kQueryTile, n.t - t);
      tile.b = b;
      tile.g = g;
      tile.r = r;
      tile.position = t;
      tile.step = together ? 0 : 1;
      tile.out = out + flat(b, t, g, r) * n.d;
      tile.out_pitch = together ? n.d : n.g * n.r * n.d;
      tile.lse = lse + flat(b, t, g, r);
      tile.lse_pitch = together ? 1 : n.g * n.r;
      work.run(tile, k.at(b, 0, g), k.pitch(), v.at(b, 0, g), v.pitch());
    }
  });
}

// An f16 tensor in f32; others as they are, for the checks that follow.
Tensor as_f32(const Tensor& t) {
  return t.defined() && t.dtype() == DType::kFloat16 ? internal::without_repeats(t, DType::kFloat32)
                                                     : t;
}

AttentionParams as_f32(AttentionParams params) {
  params.mask = as_f32(params.mask);
  return params;
}

}  // namespace

AttentionResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionParams& params) {
  if (q.dtype() == DType::kFloat16) {
    AttentionResult wide = attention_forward(as_f32(q), as_f32(k), as_f32(v), as_f32(params));
    return {wide.out.to(DType::kFloat16), wide.lse};
  }
  const AttentionSizes n("attention_forward", q, k, v, params.scale);
  const DType dtype = accumulator_of(q.dtype());
  const Tensor out = Tensor::empty(q.shape(), dtype);
  const Tensor lse = Tensor::empty({n.b, n.t, n.g, n.r}, dtype);
  const KeyLimit limit{params.causal, params.query_offset};
  visit_floating("attention_forward", q.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = simd::Compute<T>;
    const ScoreMask<A> mask("attention_forward", params.mask, n, q.dtype());
    if (n.t == 1) {  // a cache is read once: not copied before
      forward<A, T>(n, limit, mask, q, k, v, out.data<A>(), lse.data<A>());
    } else {
      forward<A, A>(n, limit, mask, q, k, v, out.data<A>(), lse.data<A>());
    }
  });
  return {out.to(q.dtype()), lse};
}

AttentionGrads attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const AttentionResult& result,
                                  const AttentionParams& params) {
  constexpr const char* kOp = "attention_backward";
  if (q.dtype() == DType::kFloat16) {
    const AttentionResult wide{as_f32(result.out), result.lse};
    const AttentionGrads grads =
        attention_backward(as_f32(grad), as_f32(q), as_f32(k), as_f32(v), wide, as_f32(params));
    const DType f16 = DType::kFloat16;
    return {grads.dq.to(f16), grads.dk.to(f16), grads.dv.to(f16)};
  }
  const AttentionSizes n(kOp, q, k, v, params.scale);
  check_same_dtype(kOp, grad, q);
  check_same_dtype(kOp, result.out, q);
  check_same_shape(kOp, grad, q);
  check_same_shape(kOp, result.out, q);
  if (result.lse.shape() != Shape{n.b, n.t, n.g, n.r}) {
    throw ArgumentError(std::string(kOp) + ": lse " + describe(result.lse) +
                        " is not that of a forward pass of q " + describe(q));
  }
  const DType dtype = accumulator_of(q.dtype());
  const AttentionGrads sums{Tensor::zeros(q.shape(), dtype), Tensor::zeros(k.shape(), dtype),
                            Tensor::zeros(v.shape(), dtype)};
  const KeyLimit limit{params.causal, params.query_offset};
  visit_floating(kOp, q.dtype(), [&](auto t) {
    using A = simd::Compute<decltype(t)>;
    internal::attention_backward_into<A>(n, limit,
                                         {grad, q, k, v, result.out, result.lse, params.mask},
                                         {sums.dq, sums.dk, sums.dv});
  });
  return {sums.dq.to(q.dtype()), sums.dk.to(q.dtype()), sums.dv.to(q.dtype())};
}

}  // namespace dtensor::cpu
