#include "dtensor/ops/cpu/conv.h"

#include <algorithm>
#include <vector>

#include "dtensor/ops/cpu/block_gemm.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

struct Sizes {
  int64_t b, g, c, h, w, o, out_h, out_w, taps;

  int64_t patch() const { return c * taps; }  // elements that one output element reads
  int64_t pixels() const { return out_h * out_w; }
  // Output rows of a block: its columns stay in the cache, or nearly so.
  int64_t block_rows() const {
    constexpr int64_t kBlock = int64_t{1} << 17;
    return std::clamp<int64_t>(kBlock / std::max<int64_t>(1, patch() * out_w), 1,
                               std::max<int64_t>(1, out_h));
  }
};

// Output rows [first, first + rows) of one image and group.
struct Rows {
  int64_t first;
  int64_t rows;
};

// f(column of the patch, row of the block, first and last output column, image offset of the first,
// step of the image from one output column to the next) for what lies inside the image.
template <class F>
void for_taps(const Sizes& n, const Window& win, Rows block, const F& f) {
  int64_t k = 0;
  for (int64_t c = 0; c < n.c; ++c) {
    for (int64_t u = 0; u < win.size[0]; ++u) {
      for (int64_t v = 0; v < win.size[1]; ++v, ++k) {
        const int64_t shift = v * win.dilation[1] - win.padding[1];
        // Output columns j with 0 <= j * stride + shift < w.
        const int64_t stride = win.stride[1];
        const int64_t begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
        const int64_t room = n.w - shift;
        const int64_t end = room <= 0 ? 0 : std::min(n.out_w, (room + stride - 1) / stride);
        for (int64_t r = 0; r < block.rows; ++r) {
          const int64_t i =
              (block.first + r) * win.stride[0] + u * win.dilation[0] - win.padding[0];
          const bool inside = i >= 0 && i < n.h && begin < end;
          f(k, r, inside ? begin : 0, inside ? end : 0,
            (c * n.h + i) * n.w + begin * stride + shift, stride);
        }
      }
    }
  }
}

// The patches of a block as columns [patch, rows * out_w].
template <class T>
void take_columns(const Sizes& n, const Window& win, Rows block, const T* image, T* columns) {
  const int64_t width = block.rows * n.out_w;
  for_taps(n, win, block,
           [&](int64_t k, int64_t r, int64_t begin, int64_t end, int64_t at, int64_t step) {
             T* row = columns + k * width + r * n.out_w;
             std::fill_n(row, begin, T{0});
             for (int64_t j = begin; j < end; ++j) row[j] = image[at + (j - begin) * step];
             std::fill(row + std::max(begin, end), row + n.out_w, T{0});
           });
}

// The adjoint: adds columns to the places that they were taken from.
template <class T>
void add_columns(const Sizes& n, const Window& win, Rows block, const T* columns, T* image) {
  const int64_t width = block.rows * n.out_w;
  for_taps(n, win, block,
           [&](int64_t k, int64_t r, int64_t begin, int64_t end, int64_t at, int64_t step) {
             const T* row = columns + k * width + r * n.out_w;
             for (int64_t j = begin; j < end; ++j) image[at + (j - begin) * step] += row[j];
           });
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

Sizes sizes_of(const Shape& x, const Shape& w, const Window& win) {
  return {.b = x[0],
          .g = x[1],
          .c = x[2],
          .h = x[3],
          .w = x[4],
          .o = w[1],
          .out_h = win.count(0, x[3]),
          .out_w = win.count(1, x[4]),
          .taps = win.size[0] * win.size[1]};
}

int64_t blocks_of(const Sizes& n) { return (n.out_h + n.block_rows() - 1) / n.block_rows(); }

Rows block_at(const Sizes& n, int64_t block) {
  const int64_t first = block * n.block_rows();
  return {first, std::min(n.block_rows(), n.out_h - first)};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Window& window) {
  const Sizes n = sizes_of(x.shape(), w.shape(), window);
  const Tensor in = widened(x);
  const Tensor kernel = widened(w);
  const Tensor out = Tensor::zeros({n.b, n.g, n.o, n.out_h, n.out_w}, in.dtype());
  if (out.numel() == 0 || n.patch() == 0) return out.to(x.dtype());
  visit_wide("conv2d", in.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t blocks = blocks_of(n);
    parallel_for(n.b * n.g * blocks, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> columns(static_cast<size_t>(n.patch() * n.block_rows() * n.out_w));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t image = task / blocks;
        const Rows block = block_at(n, task % blocks);
        const int64_t width = block.rows * n.out_w;
        take_columns(n, window, block, in.data<T>() + image * n.c * n.h * n.w, columns.data());
        block_gemm({n.o, width, n.patch()},
                   Block<T>{kernel.data<T>() + image % n.g * n.o * n.patch(), n.patch()},
                   Block<T>{columns.data(), width},
                   OutBlock<T>{out.data<T>() + image * n.o * n.pixels() + block.first * n.out_w,
                               n.pixels()});
      }
    });
  });
  return out.to(x.dtype());
}

Tensor conv2d_dx(const Tensor& g, const Tensor& w, const Window& window,
                 std::array<int64_t, 2> image_size) {
  const Shape shape{g.shape()[0], g.shape()[1], w.shape()[2], image_size[0], image_size[1]};
  const Sizes n = sizes_of(shape, w.shape(), window);
  const Tensor grad = widened(g);
  const Tensor kernel = widened(w);
  const Tensor dx = Tensor::zeros(shape, grad.dtype());
  if (dx.numel() == 0 || grad.numel() == 0) return dx.to(g.dtype());
  visit_wide("conv2d_dx", grad.dtype(), [&](auto t) {
    using T = decltype(t);
    parallel_for(n.b * n.g, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> columns(static_cast<size_t>(n.patch() * n.block_rows() * n.out_w));
      for (int64_t image = begin; image < end; ++image) {
        for (int64_t k = 0; k < blocks_of(n); ++k) {
          const Rows block = block_at(n, k);
          const int64_t width = block.rows * n.out_w;
          block_gemm(
              {n.patch(), width, n.o},
              Block<T>{kernel.data<T>() + image % n.g * n.o * n.patch(), n.patch(), Op::kTranspose},
              Block<T>{grad.data<T>() + image * n.o * n.pixels() + block.first * n.out_w,
                       n.pixels()},
              OutBlock<T>{columns.data(), width});
          add_columns(n, window, block, columns.data(), dx.data<T>() + image * n.c * n.h * n.w);
        }
      }
    });
  });
  return dx.to(g.dtype());
}

Tensor conv2d_dw(const Tensor& x, const Tensor& g, const Window& window) {
  const Shape shape{x.shape()[1], g.shape()[2], x.shape()[2], window.size[0], window.size[1]};
  const Sizes n = sizes_of(x.shape(), shape, window);
  const Tensor in = widened(x);
  const Tensor grad = widened(g);
  const Tensor dw = Tensor::zeros(shape, in.dtype());
  if (dw.numel() == 0 || grad.numel() == 0) return dw.to(x.dtype());
  visit_wide("conv2d_dw", in.dtype(), [&](auto t) {
    using T = decltype(t);
    // The batch goes in slices, each with a sum of its own, so that threads share nothing; slices
    // are fixed by the shape and added in order.
    const int64_t slices = std::min<int64_t>(n.b, 8);
    const int64_t size = n.o * n.patch();
    std::vector<T> sums(static_cast<size_t>(slices * n.g * size), T{0});
    parallel_for(slices * n.g, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> columns(static_cast<size_t>(n.patch() * n.block_rows() * n.out_w));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t slice = task / n.g;
        for (int64_t b = slice * n.b / slices; b < (slice + 1) * n.b / slices; ++b) {
          const int64_t image = b * n.g + task % n.g;
          for (int64_t k = 0; k < blocks_of(n); ++k) {
            const Rows block = block_at(n, k);
            const int64_t width = block.rows * n.out_w;
            take_columns(n, window, block, in.data<T>() + image * n.c * n.h * n.w, columns.data());
            block_gemm({n.o, n.patch(), width},
                       Block<T>{grad.data<T>() + image * n.o * n.pixels() + block.first * n.out_w,
                                n.pixels()},
                       Block<T>{columns.data(), width, Op::kTranspose},
                       OutBlock<T>{sums.data() + task * size, n.patch()}, {.beta = 1});
          }
        }
      }
    });
    T* out = dw.data<T>();
    for (int64_t slice = 0; slice < slices; ++slice) {
      const T* add = sums.data() + slice * n.g * size;
      for (int64_t i = 0; i < n.g * size; ++i) out[i] += add[i];
    }
  });
  return dw.to(x.dtype());
}

}  // namespace dtensor::cpu
