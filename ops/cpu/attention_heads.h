// What forward and backward of attention share: checked sizes, heads as blocks of memory, and which
// keys a query sees.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu::internal {

// Queries and keys of a tile: their scores stay in the cache.
inline constexpr int64_t kQueryTile = 64;
inline constexpr int64_t kKeyTile = 256;

struct AttentionSizes {
  int64_t b, t, g, r, d, s;
  double scale;

  // scale_or_0: 0 stands for 1 / sqrt(d).
  AttentionSizes(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                 double scale_or_0) {
    const Shape& sq = q.shape();
    const bool ranks = sq.ndim() == 5 && k.ndim() == 4;
    if (!ranks || k.shape() != v.shape() || k.shape()[0] != sq[0] || k.shape()[2] != sq[2] ||
        k.shape()[3] != sq[4] || k.dtype() != q.dtype() || v.dtype() != q.dtype()) {
      throw ArgumentError(std::string(op) +
                          ": wants q [b,t,g,r,d], k and v [b,s,g,d] of one dtype, found " +
                          describe(q) + ", " + describe(k) + " and " + describe(v));
    }
    b = sq[0], t = sq[1], g = sq[2], r = sq[3], d = sq[4], s = k.shape()[1];
    scale = scale_or_0 != 0 ? scale_or_0 : 1 / std::sqrt(static_cast<double>(d));
  }
};

// A tensor [b, position, g, (r,) d] in the type computed in, with adjacent elements of d.
template <class A>
class Heads {
 public:
  explicit Heads(const Tensor& t) : t_(t.to(kDTypeOf<A>)) {
    const int last = t_.ndim() - 1;
    if (t_.strides()[last] != 1 || t_.strides()[1] < t_.shape()[last]) t_ = t_.contiguous();
    data_ = t_.data<A>();
  }
  A* at(int64_t b, int64_t position, int64_t g, int64_t r = 0) const {
    return data_ + b * t_.strides()[0] + position * t_.strides()[1] + g * t_.strides()[2] +
           (t_.ndim() == 5 ? r * t_.strides()[3] : 0);
  }
  // From one position, or one query head, to the next.
  int64_t pitch() const { return std::max(t_.strides()[1], t_.shape().back()); }
  int64_t head_pitch() const { return std::max(t_.strides()[3], t_.shape().back()); }
  bool heads_have_pitch() const { return t_.strides()[3] >= t_.shape().back(); }

 private:
  Tensor t_;
  A* data_;
};

// How many of the keys from `first` on, of `count`, the query at a position sees.
struct KeyLimit {
  bool causal;
  int64_t query_offset;
  int64_t operator()(int64_t position, int64_t first, int64_t count) const {
    if (!causal) return count;
    return std::clamp<int64_t>(position + query_offset + 1 - first, 0, count);
  }
};

// t in another dtype, with dims that are repeated still repeated.
inline Tensor without_repeats(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor small = t;
  for (int d = 0; d < t.ndim(); ++d) {
    if (t.strides()[d] == 0 && t.shape()[d] > 1) small = small.narrow(d, 0, 1);
  }
  return small.to(dtype).expand(t.shape());
}

// A mask [b,g,r,t,s] in the memory that it has: bool, or added to the scores. Undefined: none.
template <class A>
class ScoreMask {
 public:
  ScoreMask(const char* op, const Tensor& mask, const AttentionSizes& n, DType of_queries)
      : keep_(mask) {
    if (!mask.defined()) return;
    const bool fits = mask.dtype() == DType::kBool || mask.dtype() == of_queries;
    if (!fits || mask.shape() != Shape{n.b, n.g, n.r, n.t, n.s}) {
      throw ArgumentError(std::string(op) + ": wants a mask [b,g,r,t,s] of bool or of q's dtype, " +
                          "found " + describe(mask));
    }
    if (mask.dtype() != DType::kBool) keep_ = without_repeats(mask, kDTypeOf<A>);
    strides_ = keep_.strides();
    if (mask.dtype() == DType::kBool) {
      seen_ = n.s > 0 ? keep_.data<bool>() : nullptr;
    } else {
      added_ = n.s > 0 ? keep_.data<A>() : nullptr;
    }
  }

  bool defined() const { return keep_.defined(); }

  // Scores of one query of the keys from `first` on.
  struct Row {
    int64_t b, g, r, t;
  };
  void apply(const Row& at, int64_t first, int64_t count, A* scores) const {
    const int64_t begin = at.b * strides_[0] + at.g * strides_[1] + at.r * strides_[2] +
                          at.t * strides_[3] + first * strides_[4];
    const int64_t step = strides_[4];
    if (seen_ != nullptr) {
      for (int64_t j = 0; j < count; ++j) {
        if (!seen_[begin + j * step]) scores[j] = -std::numeric_limits<A>::infinity();
      }
    } else {
      for (int64_t j = 0; j < count; ++j) scores[j] += added_[begin + j * step];
    }
  }

 private:
  Tensor keep_;
  Shape strides_;
  const bool* seen_ = nullptr;
  const A* added_ = nullptr;
};

}  // namespace dtensor::cpu::internal
