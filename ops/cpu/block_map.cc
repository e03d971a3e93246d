#include "dtensor/ops/cpu/block_map.h"

#include <string>

#include "dtensor/ops/cpu/dtypes.h"
#include "dtensor/ops/cpu/strided.h"

namespace dtensor::cpu {
namespace {

constexpr int64_t kBlock = 512;  // elements brought to the type computed in at once

// `n` elements of T, `step` apart (0: one that is repeated), as adjacent ones of A; and back.
template <class T, class A>
void load(const void* from, int64_t step, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  A* y = static_cast<A*>(to);
  if (step == 0) {
    std::fill_n(y, n, internal::convert<A>(*x));
  } else if constexpr (std::is_same_v<T, BFloat16> && std::is_same_v<A, float>) {
    if (step == 1) {
      return simd::dispatch([&](auto isa) {
        constexpr int kLanes = decltype(isa)::template lanes<float>();
        simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
          simd::store_part<kLanes>(y + i, simd::load_part<kLanes>(x + i, lanes), lanes);
        });
      });
    }
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i * step]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = internal::convert<A>(x[i * step]);
  }
}

template <class A, class T>
void store(const void* from, int64_t n, void* to) {
  const A* x = static_cast<const A*>(from);
  T* y = static_cast<T*>(to);
  if constexpr (std::is_same_v<T, BFloat16> && std::is_same_v<A, float>) {
    simd::dispatch([&](auto isa) {
      constexpr int kLanes = decltype(isa)::template lanes<float>();
      simd::for_lanes<kLanes>(n, [&](int64_t i, auto lanes) {
        simd::store_part<kLanes>(y + i, simd::load_part<kLanes>(x + i, lanes), lanes);
      });
    });
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = internal::convert<T>(x[i]);
  }
}

using Load = void (*)(const void*, int64_t, int64_t, void*);
using Store = void (*)(const void*, int64_t, void*);

template <class F>
decltype(auto) visit_computed(DType computed, F&& f) {
  if (computed == DType::kFloat32) return f(float{});
  if (computed == DType::kFloat64) return f(double{});
  return f(int64_t{});
}

Load load_of(DType from, DType computed) {
  return visit_dtype(from, [&](auto t) {
    return visit_computed(computed, [](auto a) -> Load { return load<decltype(t), decltype(a)>; });
  });
}

Store store_of(DType computed, DType to) {
  return visit_dtype(to, [&](auto t) {
    return visit_computed(computed,
                          [](auto a) -> Store { return store<decltype(a), decltype(t)>; });
  });
}

// What is known of an operand for all blocks.
struct Input {
  const char* data = nullptr;
  int64_t step = 0;  // along the innermost dim
  int64_t bytes = 0;
  Load load = nullptr;
  bool direct = true;
};

BlockFn function_of(const BlockFns& fns, DType dtype) {
  const DType computed = computed_in(dtype);
  if (computed == DType::kFloat32) return fns.f32;
  return computed == DType::kFloat64 ? fns.f64 : fns.i64;
}

bool lies_plain(const Tensor& x, const Shape& shape, DType dtype) {
  return x.dtype() == dtype && x.shape() == shape && x.is_contiguous();
}

}  // namespace

DType computed_in(DType dtype) {
  if (dtype == DType::kFloat64) return DType::kFloat64;
  return is_floating(dtype) ? DType::kFloat32 : DType::kInt64;
}

void check_takes(const char* op, const BlockFns& fns, DType dtype, TakesBool takes_bool) {
  if (!fns.i64 && !is_floating(dtype)) refuse_dtype(op, dtype, "f32, f64, bf16 and f16");
  if (dtype == DType::kBool && takes_bool == TakesBool::kNo) {
    refuse_dtype(op, dtype, "floating dtypes and integers");
  }
}

void map_blocks(const BlockFns& fns, const BlockCall& call) {
  const BlockFn fn = function_of(fns, call.dtype);
  const DType computed = computed_in(call.dtype);
  const Shape& shape = call.out.shape();
  const int64_t total = shape.numel();
  if (total == 0) return;
  char* out = static_cast<char*>(call.out.raw());
  const int64_t out_bytes = size_of(call.out.dtype());
  const bool out_direct = call.out.dtype() == computed;

  const bool plain = out_direct && std::ranges::all_of(call.in, [&](const Tensor* x) {
                       return lies_plain(*x, shape, computed);
                     });
  if (plain && total <= kGrain) {
    MapBlock block{{}, out, total, call.numbers};
    for (size_t k = 0; k < call.in.size(); ++k) block.in[k] = call.in[k]->raw();
    return fn(block);
  }

  StridedLoop<kBlockInputs> loop{shape, {}};
  for (size_t k = 0; k < kBlockInputs; ++k) {
    loop.strides[k] = broadcast_strides(*call.in[std::min(k, call.in.size() - 1)], shape);
  }
  loop.merge();
  std::array<Input, kBlockInputs> in{};
  for (size_t k = 0; k < call.in.size(); ++k) {
    const Tensor& x = *call.in[k];
    const int64_t step = loop.strides[k].back();
    in[k] = {static_cast<const char*>(x.raw()), step, size_of(x.dtype()),
             load_of(x.dtype(), computed), step == 1 && x.dtype() == computed};
  }
  const Store store = store_of(computed, call.out.dtype());
  const bool all_direct =
      out_direct && std::ranges::all_of(in, [](const Input& i) { return i.direct; });

  loop.for_runs([&](int64_t begin, const std::array<int64_t, kBlockInputs>& at, int64_t length) {
    alignas(64) std::array<std::array<int64_t, kBlock>, kBlockInputs> loaded;
    alignas(64) std::array<int64_t, kBlock> result;
    const int64_t most = all_direct ? length : kBlock;
    for (int64_t done = 0; done < length; done += most) {
      MapBlock block{{}, nullptr, std::min(most, length - done), call.numbers};
      for (size_t k = 0; k < call.in.size(); ++k) {
        const Input& x = in[k];
        const char* from = x.data + (at[k] + done * x.step) * x.bytes;
        block.in[k] = x.direct ? static_cast<const void*>(from) : loaded[k].data();
        // One that is repeated is loaded for the first block only.
        if (x.direct || (x.step == 0 && done > 0)) continue;
        x.load(from, x.step, block.n, loaded[k].data());
      }
      char* to = out + (begin + done) * out_bytes;
      block.out = out_direct ? static_cast<void*>(to) : result.data();
      fn(block);
      if (!out_direct) store(result.data(), block.n, to);
    }
  });
}

}  // namespace dtensor::cpu
