#include "dtensor/ops/cpu/index.h"

#include <algorithm>
#include <cstddef>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

// A shape around a dim: [outer, length, inner].
struct Around {
  int64_t outer = 1;
  int64_t length = 0;
  int64_t inner = 1;

  Around(const Shape& shape, int dim) : length(shape[dim]) {
    for (int d = 0; d < dim; ++d) outer *= shape[d];
    for (int d = dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  }
};

Shape with_length(Shape shape, int dim, int64_t length) {
  shape[dim] = length;
  return shape;
}

// What stands for rows that another rank holds: the identity of the sum that will join them.
Tensor nothing(const Shape& shape, DType dtype) {
  return Tensor::full(shape, is_floating(dtype) ? -0.0 : 0.0, dtype);
}

// Sums of 16-bit types are f32, to be rounded once.
Tensor sums_like(const Shape& shape, DType dtype) {
  return Tensor::zeros(shape, size_of(dtype) == 2 ? DType::kFloat32 : dtype);
}

Tensor wide(const Tensor& g) {
  const Tensor x = size_of(g.dtype()) == 2 ? g.to(DType::kFloat32) : g;
  return x.contiguous();
}

template <class F>
void visit_sum(const char* op, DType dtype, const F& f) {
  if (dtype == DType::kFloat32) return f(float{});
  if (dtype == DType::kFloat64) return f(double{});
  refuse_dtype(op, dtype, "floating types");
}

}  // namespace

Tensor index_select(const Tensor& a, int dim, const Tensor& index, Range rows) {
  const Tensor from = a.contiguous();
  const Tensor ids = index.contiguous();
  const Around n(a.shape(), dim);
  const int64_t count = ids.numel();
  const Tensor out = Tensor::empty(with_length(a.shape(), dim, count), a.dtype());
  if (out.numel() == 0) return out;
  const auto* id = ids.data<int64_t>();
  const int64_t bytes = n.inner * size_of(a.dtype());
  const auto* in = static_cast<const std::byte*>(from.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  const Tensor none = nothing({n.inner}, a.dtype());
  const auto* absent = static_cast<const std::byte*>(none.raw());
  parallel_rows(n.outer * count, n.inner, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = id[row % count];
      std::byte* cell = to + row * bytes;
      if (at >= rows.begin && at < rows.end) {
        const int64_t source = row / count * n.length + at - rows.begin;
        std::copy_n(in + source * bytes, bytes, cell);
      } else {
        std::copy_n(absent, bytes, cell);
      }
    }
  });
  return out;
}

Tensor index_sum(const Tensor& g, int dim, const Tensor& index, Range rows) {
  const Tensor from = wide(g);
  const Tensor ids = index.contiguous();
  const Around n(g.shape(), dim);
  const Tensor sums = sums_like(with_length(g.shape(), dim, rows.size()), g.dtype());
  if (from.numel() == 0 || rows.empty()) return sums.to(g.dtype());
  const auto* id = ids.data<int64_t>();
  visit_sum("index_sum", from.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* in = from.data<T>();
    T* to = sums.data<T>();
    parallel_rows(n.outer, n.length * n.inner, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t w = 0; w < n.length; ++w) {
          if (id[w] < rows.begin || id[w] >= rows.end) continue;
          const T* add = in + (o * n.length + w) * n.inner;
          T* sum = to + (o * rows.size() + id[w] - rows.begin) * n.inner;
          for (int64_t i = 0; i < n.inner; ++i) sum[i] += add[i];
        }
      }
    });
  });
  return sums.to(g.dtype());
}

Tensor gather(const Tensor& a, int dim, const Tensor& index, Range rows) {
  const Tensor from = a.contiguous();
  const Tensor ids = index.contiguous();
  const Around n(index.shape(), dim);
  const Tensor out = Tensor::empty(index.shape(), a.dtype());
  if (out.numel() == 0) return out;
  const auto* id = ids.data<int64_t>();
  visit_dtype(a.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* in = rows.empty() ? nullptr : from.data<T>();
    T* to = out.data<T>();
    const Tensor none = nothing({}, a.dtype());
    const T absent = *none.data<T>();
    parallel_rows(n.outer, n.length * n.inner, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * n.length * n.inner; at < end * n.length * n.inner; ++at) {
        const int64_t o = at / (n.length * n.inner);
        const bool held = id[at] >= rows.begin && id[at] < rows.end;
        to[at] =
            held ? in[(o * rows.size() + id[at] - rows.begin) * n.inner + at % n.inner] : absent;
      }
    });
  });
  return out;
}

Tensor scatter_sum(const Tensor& g, int dim, const Tensor& index, Range rows) {
  const Tensor from = wide(g);
  const Tensor ids = index.contiguous();
  const Around n(index.shape(), dim);
  const Tensor sums = sums_like(with_length(index.shape(), dim, rows.size()), g.dtype());
  if (from.numel() == 0 || rows.empty()) return sums.to(g.dtype());
  const auto* id = ids.data<int64_t>();
  visit_sum("scatter_sum", from.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* in = from.data<T>();
    T* to = sums.data<T>();
    parallel_rows(n.outer, n.length * n.inner, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin * n.length * n.inner; at < end * n.length * n.inner; ++at) {
        if (id[at] < rows.begin || id[at] >= rows.end) continue;
        const int64_t o = at / (n.length * n.inner);
        to[(o * rows.size() + id[at] - rows.begin) * n.inner + at % n.inner] += in[at];
      }
    });
  });
  return sums.to(g.dtype());
}

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype) {
  Shape shape = index.shape();
  shape.push_back(classes);
  const Tensor ids = index.contiguous();
  const Tensor out = Tensor::zeros(shape, dtype);
  if (out.numel() == 0) return out;
  const auto* id = ids.data<int64_t>();
  const Tensor one = Tensor::full({}, 1.0, dtype);
  const int64_t bytes = size_of(dtype);
  const auto* bits = static_cast<const std::byte*>(one.raw());
  auto* to = static_cast<std::byte*>(out.raw());
  for (int64_t i = 0; i < ids.numel(); ++i) {
    std::copy_n(bits, bytes, to + (i * classes + id[i]) * bytes);
  }
  return out;
}

}  // namespace dtensor::cpu
