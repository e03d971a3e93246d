// Pooling of images over windows.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// By rows, then by columns of the image.
struct Pool2dOptions {
  std::array<int64_t, 2> size = {2, 2};
  std::optional<std::array<int64_t, 2>> stride = {};  // the size where not given
  std::array<int64_t, 2> padding = {0, 0};            // on both sides, at most half the size
};

// x [..,h,w] -> [..,H,W]; h and w may not be cut.
//   max  Padding never wins, NaN does; the gradient goes to the first of the largest elements.
//   avg  Divided by the window's size, padding (0) included. Linear.
DTensor max_pool2d(const DTensor& x, const Pool2dOptions& options,
                   CallSite site = CallSite::here());
DTensor avg_pool2d(const DTensor& x, const Pool2dOptions& options,
                   CallSite site = CallSite::here());

}  // namespace dtensor
