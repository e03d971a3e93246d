// Order along a dim of a local Tensor. Equal elements stay in the order of their indices, ascending
// and descending; NaN counts as larger than every number.

#pragma once

#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

enum class Order { kAscending, kDescending };

struct Sorted {
  Tensor values;   // of x's dtype
  Tensor indices;  // i64, where each stood
};
// The first `count` of the dim in order. Every dtype but bool.
Sorted sort(const Tensor& x, int dim, Order order, int64_t count);

}  // namespace dtensor::cpu
