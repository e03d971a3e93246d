// Rows: a tensor [...,width] as equally spaced rows of adjacent elements. A tensor that does not
// lie so is copied first.

#pragma once

#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

template <class T>
class Rows {
 public:
  explicit Rows(const Tensor& x) : width_(x.shape().back()) {
    count_ = 1;
    for (int d = 0; d < x.ndim() - 1; ++d) count_ *= x.shape()[d];
    t_ = x.reshape({count_, width_});
    if (width_ > 1 && t_.strides()[1] != 1) t_ = t_.contiguous();
    data_ = t_.data<T>();
    pitch_ = t_.strides()[0];
  }
  int64_t count() const { return count_; }
  int64_t width() const { return width_; }
  const T* operator[](int64_t row) const { return data_ + row * pitch_; }

 private:
  Tensor t_;  // keeps a copy alive
  const T* data_;
  int64_t count_;
  int64_t width_;
  int64_t pitch_;
};

}  // namespace dtensor::cpu
