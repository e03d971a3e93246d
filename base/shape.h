// Shape: up to 8 int64 numbers held inline, one per tensor dim. Offsets and strides use it too.
// Nothing here allocates.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "dtensor/base/checked.h"

namespace dtensor {

inline constexpr int kMaxDims = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  // ArgumentError for more than kMaxDims.
  explicit Shape(std::span<const int64_t> dims) : ndim_(checked_ndim(dims.size())) {
    std::ranges::copy(dims, dims_.begin());
  }
  static Shape filled(int ndim, int64_t value) {
    Shape s;
    s.ndim_ = checked_ndim(static_cast<size_t>(ndim));
    std::fill_n(s.dims_.begin(), ndim, value);
    return s;
  }

  int ndim() const { return ndim_; }
  int64_t operator[](int dim) const { return dims_[static_cast<size_t>(dim)]; }
  int64_t& operator[](int dim) { return dims_[static_cast<size_t>(dim)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + ndim_; }
  int64_t* begin() { return dims_.data(); }
  int64_t* end() { return dims_.data() + ndim_; }
  int64_t back() const { return dims_[static_cast<size_t>(ndim_ - 1)]; }
  void push_back(int64_t value) {
    checked_ndim(static_cast<size_t>(ndim_) + 1);
    dims_[static_cast<size_t>(ndim_++)] = value;
  }
  operator std::span<const int64_t>() const {  // NOLINT(google-explicit-constructor)
    return {dims_.data(), static_cast<size_t>(ndim_)};
  }

  // The product of all dims, 1 for a scalar. ArgumentError where it overflows, 0 where a dim is 0.
  int64_t numel() const;

  friend bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a, b); }

 private:
  static int checked_ndim(size_t ndim) {
    if (ndim > kMaxDims) {
      throw ArgumentError("a tensor has at most 8 dims, asked for " + std::to_string(ndim));
    }
    return static_cast<int>(ndim);
  }

  std::array<int64_t, kMaxDims> dims_{};
  int ndim_ = 0;
};

// "[4,11]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

// Row-major strides, in elements.
Shape contiguous_strides(const Shape& shape);

// A dim given as 0..ndim-1 or -ndim..-1, as 0..ndim-1. ArgumentError naming `what` otherwise.
int normalize_dim(int dim, int ndim, const char* what);

// Throws ArgumentError if any dim is negative or the number of elements overflows.
void check_shape(const Shape& shape, const char* what);

}  // namespace dtensor
