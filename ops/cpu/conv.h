// Convolution of images by local Tensors, as matrix products over columns of patches (im2col;
// Chellapilla et al., "High performance convolutional neural networks for document processing",
// 2006): a block of output rows at a time, so that memory does not grow with the image.
//   x [b,g,c,h,w]   w [g,o,c,kh,kw]   y [b,g,o,H,W]      g groups of c and o channels
// Operands may be strided or empty. f32, f64; 16-bit types by way of f32, rounded once. Results are
// new and contiguous, and the same bits for every number of threads.

#pragma once

#include <array>
#include <cstdint>

#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// By rows, then by columns of the image. `size` is the window's.
struct Window {
  std::array<int64_t, 2> size = {1, 1};
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};  // zeros on both sides
  std::array<int64_t, 2> dilation = {1, 1};

  // Windows along an image dim (0 or 1) of `length`; below 1 where none fits.
  int64_t count(int dim, int64_t length) const {
    const auto d = static_cast<size_t>(dim);
    const int64_t reach = dilation[d] * (size[d] - 1) + 1;
    const int64_t room = length + 2 * padding[d] - reach;
    return room < 0 ? 0 : room / stride[d] + 1;
  }
};

Tensor conv2d(const Tensor& x, const Tensor& w, const Window& window);
// The gradients for g [b,g,o,H,W]: of x, which was [..,h,w]; and of w.
Tensor conv2d_dx(const Tensor& g, const Tensor& w, const Window& window,
                 std::array<int64_t, 2> image);
Tensor conv2d_dw(const Tensor& x, const Tensor& g, const Window& window);

}  // namespace dtensor::cpu
