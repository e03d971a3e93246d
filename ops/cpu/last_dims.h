// LastDims: a tensor as contiguous rows over chosen dims, and back: for kernels that go along them
// one row at a time.

#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

class LastDims {
 public:
  // dims: sorted, 0..ndim-1.
  LastDims(const Tensor& x, std::span<const int> dims) {
    for (int d = 0; d < x.ndim(); ++d) {
      if (!std::ranges::binary_search(dims, d)) order_.push_back(d);
    }
    for (const int d : order_) {
      count_ *= x.shape()[d];
      kept_.push_back(x.shape()[d]);
    }
    for (const int d : dims) {
      length_ *= x.shape()[d];
      order_.push_back(d);
    }
    const Tensor moved = x.permute(order_);
    moved_ = moved.shape();
    rows_ = moved.contiguous().view({count_, length_});
  }

  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  const Shape& kept() const { return kept_; }   // [kept dims]
  const Tensor& rows() const { return rows_; }  // [count, length], contiguous

  // Rows of this form in the order of x's dims.
  Tensor restore(const Tensor& rows) const {
    std::vector<int> back(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      back[static_cast<size_t>(order_[i])] = static_cast<int>(i);
    }
    return rows.view(moved_).permute(back).contiguous();
  }

 private:
  std::vector<int> order_;
  Shape kept_;
  Shape moved_;
  Tensor rows_;
  int64_t count_ = 1;
  int64_t length_ = 1;
};

}  // namespace dtensor::cpu
