// For backward functions that are recorded (create_graph) and so are made of ops. Internal.

#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/ops/reduction.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::ops {

// y, what a reduction of x gave or its gradient, repeated over the reduced dims to x's shape.
DTensor spread_to(const Reduction& r, const DTensor& y, const DTensor& x);

// Error naming the op where one of `dims` of x is cut: the backward of a communicating row is not
// recorded.
void check_uncut(std::string_view op, const DTensor& x, const std::vector<int>& dims);

// In what a backward made of ops computes, so that its results are rounded once: f64 where one of
// them is, else f32.
DType computed_together(std::initializer_list<DType> dtypes);

}  // namespace dtensor::ops
