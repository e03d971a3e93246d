#include "dtensor/ops/cpu/block_gemm.h"

#include <dnnl.h>

#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/ops/cpu/dnnl_thread.h"
#include "dtensor/ops/cpu/gemm_f64.h"
#include "dtensor/ops/cpu/row_product.h"

namespace dtensor::cpu {
namespace {

template <class T>
void scale_block(GemmSize size, const OutBlock<T>& c, T beta) {
  for (int64_t i = 0; i < size.m; ++i) {
    T* row = c.data + i * c.pitch;
    for (int64_t j = 0; j < size.n; ++j) row[j] = beta == 0 ? 0 : beta * row[j];
  }
}

// A product of few numbers, for which oneDNN takes longer to begin than to multiply.
constexpr int64_t kFewMultiplications = 4096;

bool is_small(GemmSize size) {
  return size.m <= kFewMultiplications && size.n <= kFewMultiplications &&
         size.k <= kFewMultiplications && size.m * size.n <= kFewMultiplications &&
         size.m * size.n * size.k <= kFewMultiplications;
}

void small_product(GemmSize size, const Block<float>& a, const Block<float>& b,
                   const OutBlock<float>& c, GemmScale<float> scale) {
  const int64_t a_row = a.op == Op::kNone ? a.pitch : 1;
  const int64_t a_inner = a.op == Op::kNone ? 1 : a.pitch;
  const int64_t b_inner = b.op == Op::kNone ? b.pitch : 1;
  const int64_t b_column = b.op == Op::kNone ? 1 : b.pitch;
  for (int64_t i = 0; i < size.m; ++i) {
    float* row = c.data + i * c.pitch;
    for (int64_t j = 0; j < size.n; ++j) row[j] = scale.beta == 0 ? 0 : scale.beta * row[j];
    for (int64_t p = 0; p < size.k; ++p) {
      const float factor = scale.alpha * a.data[i * a_row + p * a_inner];
      const float* other = b.data + p * b_inner;
      if (b_column == 1) {
        for (int64_t j = 0; j < size.n; ++j) row[j] += factor * other[j];
      } else {
        for (int64_t j = 0; j < size.n; ++j) row[j] += factor * other[j * b_column];
      }
    }
  }
}

// ---- bf16
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

dnnl::memory::desc describe(int64_t rows, int64_t columns, Type type, int64_t pitch, Op op) {
  return {{rows, columns}, type, op == Op::kNone ? Dims{pitch, 1} : Dims{1, pitch}};
}

// A thread's matmul primitives, by sizes, pitches and ops: making one costs as much as running a
// small one.
class Primitives {
 public:
  // c = a b, or c += a b where c is f32. Empty where this machine's oneDNN has no such primitive.
  void run(GemmSize s, const Block<BFloat16>& a, const Block<BFloat16>& b, void* c, int64_t ldc,
           Type c_type) {
    const Key key{s.m,
                  s.n,
                  s.k,
                  a.pitch,
                  b.pitch,
                  ldc,
                  static_cast<int64_t>(a.op) * 256 + static_cast<int64_t>(b.op),
                  static_cast<int64_t>(c_type)};
    auto found = made_.find(key);
    if (found == made_.end()) {
      if (made_.size() >= kMost) made_.clear();
      found = made_.emplace(key, make(s, a, b, ldc, c_type)).first;
    }
    Entry& e = found->second;
    e.a.set_data_handle(const_cast<BFloat16*>(a.data));
    e.b.set_data_handle(const_cast<BFloat16*>(b.data));
    e.c.set_data_handle(c);
    e.matmul.execute(stream_, {{DNNL_ARG_SRC, e.a}, {DNNL_ARG_WEIGHTS, e.b}, {DNNL_ARG_DST, e.c}});
  }

 private:
  static constexpr size_t kMost = 1024;
  using Key = std::array<int64_t, 8>;
  struct Entry {
    dnnl::matmul matmul;
    dnnl::memory a;
    dnnl::memory b;
    dnnl::memory c;
  };

  Entry make(GemmSize s, const Block<BFloat16>& a, const Block<BFloat16>& b, int64_t ldc,
             Type c_type) const {
    // oneDNN takes locks of its own here, which the thread sanitizer does not see.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const auto da = describe(s.m, s.k, Type::bf16, a.pitch, a.op);
    const auto db = describe(s.k, s.n, Type::bf16, b.pitch, b.op);
    const auto dc = describe(s.m, s.n, c_type, ldc, Op::kNone);
    dnnl::primitive_attr attributes;
    if (c_type == Type::f32) {
      dnnl::post_ops add;
      add.append_sum(1.0F);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(da, db, dc), attributes, engine_);
    return {dnnl::matmul(chosen), dnnl::memory(da, engine_, nullptr),
            dnnl::memory(db, engine_, nullptr), dnnl::memory(dc, engine_, nullptr)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<Key, Entry> made_;
};

// False where this machine's oneDNN has no bf16 product.
bool run_bf16(GemmSize size, const Block<BFloat16>& a, const Block<BFloat16>& b, void* c,
              int64_t ldc, Type c_type) {
  thread_local Primitives primitives;
  const DnnlThread one;
  try {
    primitives.run(size, a, b, c, ldc, c_type);
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return false;
    throw InternalError(std::string("oneDNN matmul: ") + e.what());
  }
  return true;
}

// The same values by way of f32 copies.
std::vector<float> widen(const Block<BFloat16>& x, int64_t rows, int64_t columns) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      out.push_back(
          static_cast<float>(x.data[x.op == Op::kNone ? i * x.pitch + j : j * x.pitch + i]));
    }
  }
  return out;
}

void by_f32(GemmSize s, const Block<BFloat16>& a, const Block<BFloat16>& b,
            const OutBlock<float>& c, float beta) {
  const std::vector<float> wide_a = widen(a, s.m, s.k);
  const std::vector<float> wide_b = widen(b, s.k, s.n);
  block_gemm(s, Block<float>{wide_a.data(), s.k}, Block<float>{wide_b.data(), s.n}, c,
             {.beta = beta});
}

// One row by the rows of a transposed b.
template <class T>
bool is_row_by_rows(GemmSize size, const Block<T>& a, const Block<T>& b) {
  return size.m == 1 && a.op == Op::kNone && b.op == Op::kTranspose;
}
template <class T>
void row_by_rows(GemmSize size, const Block<T>& a, const Block<T>& b, const OutBlock<T>& c) {
  row_product(RowProduct<T>{a.data, b.data, b.pitch, size.n, size.k, c.data});
}

}  // namespace

void block_gemm(GemmSize size, const Block<float>& a, const Block<float>& b,
                const OutBlock<float>& c, GemmScale<float> scale) {
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) return scale_block(size, c, scale.beta);
  if (is_row_by_rows(size, a, b) && scale.alpha == 1 && scale.beta == 0) {
    return row_by_rows(size, a, b, c);
  }
  if (is_small(size)) return small_product(size, a, b, c, scale);
  const DnnlThread one;
  const dnnl_status_t status =
      dnnl_sgemm(static_cast<char>(a.op), static_cast<char>(b.op), size.m, size.n, size.k,
                 scale.alpha, a.data, a.pitch, b.data, b.pitch, scale.beta, c.data, c.pitch);
  internal_check(status == dnnl_success, "dnnl_sgemm refused its arguments");
}

void block_gemm(GemmSize size, const Block<double>& a, const Block<double>& b,
                const OutBlock<double>& c, GemmScale<double> scale) {
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) return scale_block(size, c, scale.beta);
  internal::gemm_f64(size, a, b, c, scale);
}

void block_gemm(GemmSize size, const Block<BFloat16>& a, const Block<BFloat16>& b,
                const OutBlock<BFloat16>& c) {
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0) {
    for (int64_t i = 0; i < size.m; ++i) std::fill_n(c.data + i * c.pitch, size.n, BFloat16{});
    return;
  }
  if (is_row_by_rows(size, a, b)) return row_by_rows(size, a, b, c);
  if (run_bf16(size, a, b, c.data, c.pitch, Type::bf16)) return;
  std::vector<float> wide(static_cast<size_t>(size.m * size.n));
  by_f32(size, a, b, {wide.data(), size.n}, 0);
  for (int64_t i = 0; i < size.m; ++i) {
    for (int64_t j = 0; j < size.n; ++j) {
      c.data[i * c.pitch + j] = BFloat16(wide[static_cast<size_t>(i * size.n + j)]);
    }
  }
}

void block_gemm_add(GemmSize size, const Block<BFloat16>& a, const Block<BFloat16>& b,
                    const OutBlock<float>& c) {
  if (size.m == 0 || size.n == 0 || size.k == 0) return;
  if (!run_bf16(size, a, b, c.data, c.pitch, Type::f32)) by_f32(size, a, b, c, 1);
}

}  // namespace dtensor::cpu
