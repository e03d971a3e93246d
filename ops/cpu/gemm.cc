#include "dtensor/ops/cpu/gemm.h"

#include <algorithm>
#include <string>

#include "dtensor/ops/cpu/block_gemm.h"
#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"

namespace dtensor::cpu {
namespace {

[[noreturn]] void refuse_shapes(const char* op, const char* wanted, const Tensor& a,
                                const Tensor& b) {
  throw ArgumentError(std::string(op) + ": wants " + wanted + ", found " + describe(a) + " and " +
                      describe(b));
}

// How a matrix lies in memory, where one pitch describes it.
struct Lie {
  bool pitched = false;
  int64_t pitch = 1;
  Op op = Op::kNone;
};

Lie lie_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if ((column_stride == 1 || columns <= 1) && (row_stride >= columns || rows <= 1)) {
    return {true, std::max<int64_t>({1, columns, rows > 1 ? row_stride : 1}), Op::kNone};
  }
  if ((row_stride == 1 || rows <= 1) && (column_stride >= rows || columns <= 1)) {
    return {true, std::max<int64_t>({1, rows, columns > 1 ? column_stride : 1}), Op::kTranspose};
  }
  return {};
}

// A stack of matrices [..., rows, columns], copied only where they have no pitch.
template <class T>
class Stack {
 public:
  explicit Stack(const Tensor& t) : t_(t) {
    const int d = t.ndim();
    lie_ = lie_of(t.shape()[d - 2], t.shape()[d - 1], t.strides()[d - 2], t.strides()[d - 1]);
    if (lie_.pitched) return;
    t_ = t.contiguous();
    lie_ = {true, std::max<int64_t>(1, t.shape()[d - 1]), Op::kNone};
  }
  Block<T> at(int64_t index) const {
    int64_t offset = 0;
    for (int d = t_.ndim() - 3; d >= 0; --d) {
      offset += index % t_.shape()[d] * t_.strides()[d];
      index /= t_.shape()[d];
    }
    return {t_.data<T>() + offset, lie_.pitch, lie_.op};
  }

 private:
  Tensor t_;
  Lie lie_;
};

// The part of op(x) that begins at a row or a column.
template <class T>
Block<T> from_row(const Block<T>& x, int64_t row) {
  return {x.data + (x.op == Op::kNone ? row * x.pitch : row), x.pitch, x.op};
}
template <class T>
Block<T> from_column(const Block<T>& x, int64_t column) {
  return {x.data + (x.op == Op::kNone ? column : column * x.pitch), x.pitch, x.op};
}

// One product as panels of rows, or of columns where there are few rows. Fixed by the size alone.
struct Panels {
  bool rows = true;
  int64_t width = 1;
  int64_t count = 1;
};

Panels panels_of(GemmSize size) {
  Panels p;
  p.rows = size.m >= size.n || size.m >= 512;
  const int64_t whole = p.rows ? size.m : size.n;
  // One row reads the other operand once, whatever the panels: that is what takes its time.
  const bool one_row = size.m == 1;
  const int64_t small = one_row ? 1 << 16 : 1 << 20;  // multiplications not worth a second thread
  const int64_t most_panels = one_row ? 64 : 16;
  const int64_t narrowest = one_row ? 32 : 128;  // reading the other operand again shows below 128
  const bool is_small = size.m * size.n < small / std::max<int64_t>(1, size.k);
  p.width = is_small ? whole : std::max(narrowest, (whole / most_panels + 31) / 32 * 32);
  p.count = (whole + p.width - 1) / p.width;
  return p;
}

// f(a, b, c, size) for every panel of every matrix of the stacks.
template <class T, class Out, class F>
void for_panels(int64_t stack, GemmSize size, const Tensor& a, const Tensor& b, Out* out,
                const F& f) {
  if (stack == 0 || size.m == 0 || size.n == 0) return;
  const Stack<T> as(a);
  const Stack<T> bs(b);
  const Panels panels = panels_of(size);
  parallel_for(stack * panels.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t index = task / panels.count;
      const int64_t from = task % panels.count * panels.width;
      Out* c = out + index * size.m * size.n;
      GemmSize part = size;
      if (panels.rows) {
        part.m = std::min(panels.width, size.m - from);
        f(part, from_row(as.at(index), from), bs.at(index),
          OutBlock<Out>{c + from * size.n, size.n});
      } else {
        part.n = std::min(panels.width, size.n - from);
        f(part, as.at(index), from_column(bs.at(index), from), OutBlock<Out>{c + from, size.n});
      }
    }
  });
}

// a [..., m, k] and b [..., k, n] of equal leading dims into a new tensor of `shape`.
Tensor product(const char* op, const Tensor& a, const Tensor& b, const Shape& shape) {
  check_same_dtype(op, a, b);
  if (a.dtype() == DType::kFloat16) {
    const DType f = DType::kFloat32;
    return product(op, a.to(f), b.to(f), shape).to(DType::kFloat16);
  }
  const int d = a.ndim();
  const GemmSize size{a.shape()[d - 2], b.shape()[d - 1], a.shape()[d - 1]};
  int64_t stack = 1;
  for (int i = 0; i < d - 2; ++i) stack *= a.shape()[i];
  Tensor out = Tensor::empty(shape, a.dtype());
  visit_floating(op, a.dtype(), [&](auto t) {
    using T = decltype(t);
    for_panels<T>(stack, size, a, b, out.data<T>(),
                  [](GemmSize part, const Block<T>& x, const Block<T>& y, const OutBlock<T>& c) {
                    block_gemm(part, x, y, c);
                  });
  });
  return out;
}

// [..., n] as [rows, n].
Tensor as_rows(const Tensor& x) {
  int64_t rows = 1;
  for (int d = 0; d < x.ndim() - 1; ++d) rows *= x.shape()[d];
  return x.reshape({rows, x.shape().back()});
}

Shape with_last(Shape shape, int64_t last) {
  shape[shape.ndim() - 1] = last;
  return shape;
}

void check_leading(const char* op, const char* wanted, const Tensor& a, const Tensor& b) {
  bool fits = a.ndim() == b.ndim() && a.ndim() >= 1;
  for (int d = 0; fits && d < a.ndim() - 1; ++d) fits = a.shape()[d] == b.shape()[d];
  if (!fits) refuse_shapes(op, wanted, a, b);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  constexpr const char* kWanted = "[...,m,k] and [...,k,n] with equal leading dims";
  const int d = a.ndim();
  bool fits = d >= 2 && b.ndim() == d && a.shape()[d - 1] == b.shape()[d - 2];
  for (int i = 0; fits && i < d - 2; ++i) fits = a.shape()[i] == b.shape()[i];
  if (!fits) refuse_shapes("matmul", kWanted, a, b);
  return product("matmul", a, b, with_last(a.shape(), b.shape().back()));
}

Tensor linear(const Tensor& x, const Tensor& w) {
  if (x.ndim() == 0 || w.ndim() != 2 || x.shape().back() != w.shape()[1]) {
    refuse_shapes("linear", "x [...,k] and w [n,k]", x, w);
  }
  return product("linear", as_rows(x), w.transpose(0, 1), with_last(x.shape(), w.shape()[0]));
}

Tensor linear_dx(const Tensor& g, const Tensor& w) {
  if (g.ndim() == 0 || w.ndim() != 2 || g.shape().back() != w.shape()[0]) {
    refuse_shapes("linear_dx", "g [...,n] and w [n,k]", g, w);
  }
  return product("linear_dx", as_rows(g), w, with_last(g.shape(), w.shape()[1]));
}

Tensor linear_dw(const Tensor& g, const Tensor& x) {
  check_leading("linear_dw", "g [...,n] and x [...,k]", g, x);
  return product("linear_dw", as_rows(g).transpose(0, 1), as_rows(x),
                 {g.shape().back(), x.shape().back()});
}

void linear_dw_add(const Tensor& g, const Tensor& x, const Tensor& dw) {
  constexpr const char* kOp = "linear_dw_add";
  check_leading(kOp, "g [...,n] and x [...,k]", g, x);
  check_same_dtype(kOp, g, x);
  if (dw.shape() != Shape{g.shape().back(), x.shape().back()} || !dw.is_contiguous()) {
    refuse_shapes(kOp, "a contiguous dw [n,k] for g [...,n]", dw, g);
  }
  const Tensor a = as_rows(g).transpose(0, 1);
  const Tensor b = as_rows(x);
  const GemmSize size{a.shape()[0], b.shape()[1], a.shape()[1]};
  visit_floating(kOp, g.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, BFloat16>) {
      for_panels<T>(1, size, a, b, dw.data<float>(),
                    [](GemmSize part, const Block<T>& p, const Block<T>& q,
                       const OutBlock<float>& c) { block_gemm_add(part, p, q, c); });
    } else {
      for_panels<T>(1, size, a, b, dw.data<T>(),
                    [](GemmSize part, const Block<T>& p, const Block<T>& q, const OutBlock<T>& c) {
                      block_gemm(part, p, q, c, {.beta = 1});
                    });
    }
  });
  dw.storage()->bump_version();
}

}  // namespace dtensor::cpu
