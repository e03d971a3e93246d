#include "dtensor/ops/cpu/pool.h"

#include <algorithm>
#include <limits>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

struct Image {
  int64_t count, h, w, out_h, out_w;
};

Image image_of(const Shape& x, const Window& window) {
  Image n{1, x[x.ndim() - 2], x[x.ndim() - 1], 0, 0};
  for (int d = 0; d < x.ndim() - 2; ++d) n.count *= x[d];
  n.out_h = window.count(0, n.h);
  n.out_w = window.count(1, n.w);
  return n;
}

Shape with_image(Shape shape, int64_t h, int64_t w) {
  shape[shape.ndim() - 2] = h;
  shape[shape.ndim() - 1] = w;
  return shape;
}

Tensor widened(const Tensor& t) {
  return (size_of(t.dtype()) == 2 ? t.to(DType::kFloat32) : t).contiguous();
}

template <class F>
void visit_wide(const char* op, DType dtype, const F& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kFloat64) return f(double{});
  refuse_dtype(op, dtype, "floating types");
}

// f(place in the image) for the elements of the window of output (i, j), row by row.
template <class F>
void for_window(const Image& n, const Window& win, int64_t i, int64_t j, const F& f) {
  for (int64_t u = 0; u < win.size[0]; ++u) {
    const int64_t y = i * win.stride[0] + u * win.dilation[0] - win.padding[0];
    if (y < 0 || y >= n.h) continue;
    for (int64_t v = 0; v < win.size[1]; ++v) {
      const int64_t x = j * win.stride[1] + v * win.dilation[1] - win.padding[1];
      if (x >= 0 && x < n.w) f(y * n.w + x);
    }
  }
}

// f(image, output place, i, j) for all outputs; an image's are on one thread.
template <class F>
void for_outputs(const Image& n, const F& f) {
  parallel_rows(n.count, n.out_h * n.out_w, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      for (int64_t i = 0; i < n.out_h; ++i) {
        for (int64_t j = 0; j < n.out_w; ++j) f(image, (image * n.out_h + i) * n.out_w + j, i, j);
      }
    }
  });
}

// The place of the first largest element of a window, -1 where it has none.
template <class T>
int64_t largest(const Image& n, const Window& win, const T* x, int64_t i, int64_t j) {
  int64_t best = -1;
  for_window(n, win, i, j, [&](int64_t at) {
    const bool better = best < 0 || x[at] > x[best] || (x[at] != x[at] && x[best] == x[best]);
    if (better) best = at;
  });
  return best;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Window& window) {
  const Image n = image_of(x.shape(), window);
  const Tensor in = widened(x);
  const Tensor out = Tensor::empty(with_image(x.shape(), n.out_h, n.out_w), in.dtype());
  if (out.numel() == 0) return out.to(x.dtype());
  visit_wide("max_pool2d", in.dtype(), [&](auto t) {
    using T = decltype(t);
    for_outputs(n, [&](int64_t image, int64_t to, int64_t i, int64_t j) {
      const T* from = in.data<T>() + image * n.h * n.w;
      const int64_t at = largest(n, window, from, i, j);
      out.data<T>()[to] = at < 0 ? -std::numeric_limits<T>::infinity() : from[at];
    });
  });
  return out.to(x.dtype());
}

Tensor max_pool2d_backward(const Tensor& g, const Tensor& x, const Window& window) {
  const Image n = image_of(x.shape(), window);
  const Tensor in = widened(x);
  const Tensor grad = widened(g);
  const Tensor dx = Tensor::zeros(x.shape(), in.dtype());
  if (grad.numel() == 0) return dx.to(x.dtype());
  visit_wide("max_pool2d_backward", in.dtype(), [&](auto t) {
    using T = decltype(t);
    for_outputs(n, [&](int64_t image, int64_t from, int64_t i, int64_t j) {
      const int64_t at = largest(n, window, in.data<T>() + image * n.h * n.w, i, j);
      if (at >= 0) dx.data<T>()[image * n.h * n.w + at] += grad.data<T>()[from];
    });
  });
  return dx.to(x.dtype());
}

Tensor avg_pool2d(const Tensor& x, const Window& window) {
  const Image n = image_of(x.shape(), window);
  const Tensor in = widened(x);
  const Tensor out = Tensor::empty(with_image(x.shape(), n.out_h, n.out_w), in.dtype());
  if (out.numel() == 0) return out.to(x.dtype());
  visit_wide("avg_pool2d", in.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto size = static_cast<T>(window.size[0] * window.size[1]);
    for_outputs(n, [&](int64_t image, int64_t to, int64_t i, int64_t j) {
      const T* from = in.data<T>() + image * n.h * n.w;
      T sum = 0;
      for_window(n, window, i, j, [&](int64_t at) { sum += from[at]; });
      out.data<T>()[to] = sum / size;
    });
  });
  return out.to(x.dtype());
}

Tensor avg_pool2d_backward(const Tensor& g, const Window& window, std::array<int64_t, 2> image) {
  const Shape shape = with_image(g.shape(), image[0], image[1]);
  const Image n = image_of(shape, window);
  const Tensor grad = widened(g);
  const Tensor dx = Tensor::zeros(shape, grad.dtype());
  if (grad.numel() == 0) return dx.to(g.dtype());
  visit_wide("avg_pool2d_backward", grad.dtype(), [&](auto t) {
    using T = decltype(t);
    const auto size = static_cast<T>(window.size[0] * window.size[1]);
    for_outputs(n, [&](int64_t k, int64_t from, int64_t i, int64_t j) {
      const T part = grad.data<T>()[from] / size;
      T* to = dx.data<T>() + k * n.h * n.w;
      for_window(n, window, i, j, [&](int64_t at) { to[at] += part; });
    });
  });
  return dx.to(g.dtype());
}

}  // namespace dtensor::cpu
