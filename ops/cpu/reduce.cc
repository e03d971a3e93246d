#include "dtensor/ops/cpu/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/parallel.h"
#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::cpu {
namespace {

// ---- What is done with two values. Element: the type computed in; Wide: that of blocks' results.
struct Add {
  template <class T>
  using Element = simd::Compute<T>;
  template <class A>
  using Wide = std::conditional_t<std::is_floating_point_v<A>, double, A>;
  template <class A>
  static constexpr A identity() {
    return A{0};
  }
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    return a + b;
  }
};

struct Multiply : Add {
  template <class A>
  static constexpr A identity() {
    return A{1};
  }
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    return a * b;
  }
};

template <bool kLargest>
struct Extreme {
  template <class T>
  using Element = std::conditional_t<std::is_integral_v<T>, T, simd::Compute<T>>;
  template <class A>
  using Wide = A;
  template <class A>
  static constexpr A identity() {
    using Limits = std::numeric_limits<A>;
    if constexpr (std::is_floating_point_v<A>) {
      return kLargest ? -Limits::infinity() : Limits::infinity();
    } else {
      return kLargest ? Limits::lowest() : Limits::max();
    }
  }
  template <class W>
  DTENSOR_INLINE static W join(const W& a, const W& b) {
    const W most = choose(a, b);
    if constexpr (is_floating<W>()) return simd::keep_nan(most, b);
    return most;
  }

 private:
  template <class W>
  DTENSOR_INLINE static W choose(const W& a, const W& b) {
    if constexpr (kLargest) return b > a ? b : a;
    return b < a ? b : a;
  }
  template <class W>
  static constexpr bool is_floating() {
    if constexpr (std::is_arithmetic_v<W>) {
      return std::is_floating_point_v<W>;
    } else {
      return std::is_floating_point_v<std::remove_cvref_t<decltype(std::declval<W&>()[0])>>;
    }
  }
};

template <class A, int kLanes, class T>
DTENSOR_INLINE simd::Vec<A, kLanes> load(const T* p) {
  if constexpr (std::is_integral_v<T>) {
    simd::Vec<A, kLanes> v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  } else {
    return simd::load<kLanes>(p);
  }
}

// ---- Where the elements are: kept dims and reduced dims, merged as far as memory allows.
struct Dim {
  int64_t size;
  int64_t stride;
};

std::vector<Dim> merged(const Tensor& x, const std::vector<int>& dims) {
  std::vector<Dim> out;
  for (const int d : dims) {
    const Dim next{x.shape()[d], x.strides()[d]};
    if (next.size == 1) continue;
    if (!out.empty() && out.back().stride == next.stride * next.size) {
      out.back() = {out.back().size * next.size, next.stride};
    } else {
      out.push_back(next);
    }
  }
  return out;
}

int64_t offset_of(const std::vector<Dim>& dims, int64_t index) {
  int64_t offset = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    offset += index % dims[d].size * dims[d].stride;
    index /= dims[d].size;
  }
  return offset;
}

// ---- Reduced elements lie side by side: one result per run of `length`.
constexpr int64_t kBlock = 2048;

template <class Op, class A, int kLanes, class T>
DTENSOR_INLINE A reduce_block(const T* x, int64_t n) {
  using Vector = simd::Vec<A, kLanes>;
  const Vector start = Vector{} + Op::template identity<A>();
  Vector part[4] = {start, start, start, start};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int l = 0; l < 4; ++l) part[l] = Op::join(part[l], load<A, kLanes>(x + i + l * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) part[0] = Op::join(part[0], load<A, kLanes>(x + i));
  const Vector all = Op::join(Op::join(part[0], part[1]), Op::join(part[2], part[3]));
  A lanes[kLanes];
  std::memcpy(lanes, &all, sizeof(all));
  for (int w = kLanes / 2; w > 0; w /= 2) {
    for (int l = 0; l < w; ++l) lanes[l] = Op::join(lanes[l], lanes[l + w]);
  }
  A result = lanes[0];
  for (; i < n; ++i) result = Op::join(result, static_cast<A>(x[i]));
  return result;
}

template <class Op, class T>
void reduce_runs(const T* x, const std::vector<Dim>& kept, int64_t count, int64_t length, T* out) {
  using A = typename Op::template Element<T>;
  using Wide = typename Op::template Wide<A>;
  const int64_t blocks = (length + kBlock - 1) / kBlock;
  std::vector<A> parts(static_cast<size_t>(count * blocks));
  parallel_rows(count * blocks, std::min(length, kBlock), [&](int64_t begin, int64_t end) {
    simd::dispatch([&](auto isa) {
      constexpr int kLanes = decltype(isa)::template lanes<A>();
      for (int64_t task = begin; task < end; ++task) {
        const int64_t from = task % blocks * kBlock;
        parts[static_cast<size_t>(task)] = reduce_block<Op, A, kLanes>(
            x + offset_of(kept, task / blocks) + from, std::min(kBlock, length - from));
      }
    });
  });
  for (int64_t i = 0; i < count; ++i) {
    auto all = Op::template identity<Wide>();
    for (int64_t b = 0; b < blocks; ++b) {
      all = Op::join(all, static_cast<Wide>(parts[static_cast<size_t>(i * blocks + b)]));
    }
    out[i] = T(static_cast<A>(all));
  }
}

// ---- Kept elements lie side by side: rows of `width` results are joined, `length` rows of them.
constexpr int64_t kChunk = 256;  // columns done at once
constexpr int64_t kRows = 64;    // rows joined before they go into the wide results

template <class Op, class A, int kLanes, class T>
DTENSOR_INLINE void reduce_columns(const T* x, Dim rows, int64_t width, T* out) {
  using Wide = typename Op::template Wide<A>;
  Wide wide[kChunk];
  A part[kChunk];
  std::fill_n(wide, width, Op::template identity<Wide>());
  for (int64_t first = 0; first < rows.size; first += kRows) {
    std::fill_n(part, width, Op::template identity<A>());
    for (int64_t r = first; r < std::min(rows.size, first + kRows); ++r) {
      const T* row = x + r * rows.stride;
      int64_t i = 0;
      for (; i + kLanes <= width; i += kLanes) {
        const auto joined = Op::join(load<A, kLanes>(part + i), load<A, kLanes>(row + i));
        std::memcpy(part + i, &joined, sizeof(joined));
      }
      for (; i < width; ++i) part[i] = Op::join(part[i], static_cast<A>(row[i]));
    }
    for (int64_t i = 0; i < width; ++i) {
      wide[i] = Op::join(wide[i], static_cast<Wide>(part[i]));
    }
  }
  for (int64_t i = 0; i < width; ++i) out[i] = T(static_cast<A>(wide[i]));
}

template <class Op, class T>
void reduce_rows(const T* x, const std::vector<Dim>& outer, int64_t count, int64_t width, Dim rows,
                 T* out) {
  using A = typename Op::template Element<T>;
  const int64_t chunks = (width + kChunk - 1) / kChunk;
  parallel_rows(count * chunks, rows.size * std::min(width, kChunk),
                [&](int64_t begin, int64_t end) {
                  simd::dispatch([&](auto isa) {
                    constexpr int kLanes = decltype(isa)::template lanes<A>();
                    for (int64_t task = begin; task < end; ++task) {
                      const int64_t index = task / chunks;
                      const int64_t from = task % chunks * kChunk;
                      reduce_columns<Op, A, kLanes>(x + offset_of(outer, index) + from, rows,
                                                    std::min(kChunk, width - from),
                                                    out + index * width + from);
                    }
                  });
                });
}

// ---- Both
struct Split {
  std::vector<int> kept;
  std::vector<int> reduced;
  Shape shape;  // of the result
};

Split split_dims(const char* op, const Tensor& x, std::span<const int> dims, KeepDims keep) {
  std::array<bool, kMaxDims> drop{};
  if (dims.empty()) drop.fill(true);
  for (const int dim : dims) {
    const auto d = static_cast<size_t>(normalize_dim(dim, x.ndim(), op));
    if (std::exchange(drop[d], true)) {
      throw ArgumentError(std::string(op) + ": dim " + std::to_string(d) + " is named twice");
    }
  }
  Split s;
  for (int d = 0; d < x.ndim(); ++d) {
    const bool reduced = drop[static_cast<size_t>(d)];
    (reduced ? s.reduced : s.kept).push_back(d);
    if (!reduced) s.shape.push_back(x.shape()[d]);
    if (reduced && keep == KeepDims::kYes) s.shape.push_back(1);
  }
  return s;
}

template <class Op, class T>
void reduce_into(const Tensor& given, const Split& split, T* out) {
  std::vector<Dim> kept = merged(given, split.kept);
  std::vector<Dim> reduced = merged(given, split.reduced);
  const int64_t count = split.shape.numel();
  const int64_t length = given.numel() / count;
  Tensor x = given;
  const bool runs = reduced.empty() || (reduced.size() == 1 && reduced[0].stride == 1);
  if (!runs && (reduced.size() > 1 || kept.empty() || kept.back().stride != 1)) {
    std::vector<int> order = split.kept;
    order.insert(order.end(), split.reduced.begin(), split.reduced.end());
    x = given.permute(order).contiguous();
    kept = {{count, length}};
  } else if (!runs) {
    const int64_t width = kept.back().size;
    kept.pop_back();
    return reduce_rows<Op>(x.data<T>(), kept, count / width, width, reduced[0], out);
  }
  reduce_runs<Op>(x.data<T>(), kept, count, length, out);
}

template <class Op>
Tensor reduce(const char* op, const Tensor& x, std::span<const int> dims, KeepDims keep) {
  if (x.dtype() == DType::kFloat16) {
    return reduce<Op>(op, x.to(DType::kFloat32), dims, keep).to(DType::kFloat16);
  }
  const Split split = split_dims(op, x, dims, keep);
  const Tensor out = Tensor::empty(split.shape, x.dtype());
  visit_number(op, x.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = typename Op::template Element<T>;
    T* to = out.data<T>();
    if (out.numel() == 0) return;
    if (x.numel() == 0) {
      std::fill_n(to, out.numel(), T(Op::template identity<A>()));
    } else {
      reduce_into<Op, T>(x, split, to);
    }
  });
  return out;
}

}  // namespace

Tensor sum(const Tensor& x, std::span<const int> dims, KeepDims keep) {
  return reduce<Add>("sum", x, dims, keep);
}
Tensor prod(const Tensor& x, std::span<const int> dims, KeepDims keep) {
  return reduce<Multiply>("prod", x, dims, keep);
}
Tensor amax(const Tensor& x, std::span<const int> dims, KeepDims keep) {
  return reduce<Extreme<true>>("amax", x, dims, keep);
}
Tensor amin(const Tensor& x, std::span<const int> dims, KeepDims keep) {
  return reduce<Extreme<false>>("amin", x, dims, keep);
}

}  // namespace dtensor::cpu
