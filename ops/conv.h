// Convolution of images.

#pragma once

#include <array>
#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// By rows, then by columns of the image.
struct Conv2dOptions {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};  // zeros on both sides
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
};

// x [b,c,h,w], w [o,c/groups,u,v], bias [o] or undefined -> [b,o,H,W] (a cross-correlation, as is
// usual). The bias counts once, as that of linear().
//   rule  bchw,ocuv->boHW: h, w, u and v may not be cut; a cut c gives P(sum); linear in x and in
//   w.
//         In groups bgchw,gocuv->bgoHW, channels cut in whole groups.
DTensor conv2d(const DTensor& x, const DTensor& w, const DTensor& bias = {},
               const Conv2dOptions& options = {}, CallSite site = CallSite::here());

}  // namespace dtensor
