// Pooling of images [...,h,w] by local Tensors over windows (dtensor/ops/cpu/conv.h). Operands may
// be strided or empty; f32, f64, and 16-bit types by way of f32.

#pragma once

#include <array>
#include <cstdint>

#include "dtensor/ops/cpu/conv.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// Padding never wins; NaN does. A window that holds nothing but padding gives -inf.
Tensor max_pool2d(const Tensor& x, const Window& window);
// g to the first of the largest elements of each window.
Tensor max_pool2d_backward(const Tensor& g, const Tensor& x, const Window& window);

// Divided by the window's size, padding included.
Tensor avg_pool2d(const Tensor& x, const Window& window);
Tensor avg_pool2d_backward(const Tensor& g, const Window& window, std::array<int64_t, 2> image);

}  // namespace dtensor::cpu
