// map_blocks: one loop for every elementwise op. Operands of any dtype, strided or broadcast, are
// brought to the type computed in block by block; a block function works on contiguous arrays of
// it.
//   constexpr BlockFns kSub = floating<2>([](const auto* x, auto& y, const auto* c) {
//     y = x[0] - x[1];
//   });
// The lambda gets vectors (simd.h), one per operand, and two numbers. It is compiled for f32 (f16
// and bf16 are rounded once, at the end), f64 and, where it makes sense, 64-bit integers (of which
// narrower ones keep the low bits, and bool whether it is not 0). A tail shorter than a vector is
// padded with ones and goes through the same instructions, so that an element's bits do not depend
// on where it stands.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "dtensor/ops/cpu/simd.h"
#include "dtensor/tensor/convert.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

inline constexpr size_t kBlockInputs = 3;
using Numbers = std::array<double, 2>;

struct MapBlock {
  std::array<const void*, kBlockInputs> in;
  void* out;
  int64_t n;
  Numbers numbers;
};
using BlockFn = void (*)(const MapBlock&);

// By the type computed in; none where the op does not take it.
struct BlockFns {
  BlockFn f32 = nullptr;
  BlockFn f64 = nullptr;
  BlockFn i64 = nullptr;
};

struct BlockCall {
  std::span<const Tensor* const> in;  // broadcast to the shape of `out`
  const Tensor& out;                  // contiguous; of any dtype
  DType dtype;                        // of the operands that count: chooses the function
  Numbers numbers = {};
};
// ArgumentError naming the op where `fns` has no function for the dtype. Arithmetic of bool has no
// meaning: it is refused, but by ops that ask whether something is 0.
enum class TakesBool : uint8_t { kNo, kYes };
void check_takes(const char* op, const BlockFns& fns, DType dtype, TakesBool takes_bool);

// The dtype has been checked.
void map_blocks(const BlockFns& fns, const BlockCall& call);

// The type that elements of a dtype are computed in: f32, f64 or i64.
DType computed_in(DType dtype);

// ---- Block functions
template <class A>
A number_as(double number) {
  if constexpr (std::is_floating_point_v<A>) return static_cast<A>(number);
  return static_cast<A>(internal::convert<int64_t>(number));
}

template <class A, size_t kIn, class F>
void run_block(const MapBlock& block) {
  simd::dispatch([&](auto isa) {
    constexpr int kLanes = decltype(isa)::template lanes<A>();
    using Vector = simd::Vec<A, kLanes>;
    const F f{};
    const A c[2] = {number_as<A>(block.numbers[0]), number_as<A>(block.numbers[1])};
    const A* in[kIn];
    for (size_t k = 0; k < kIn; ++k) in[k] = static_cast<const A*>(block.in[k]);
    A* out = static_cast<A*>(block.out);
    const int64_t whole = block.n / kLanes * kLanes;
    Vector x[kIn];
    Vector y;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (size_t k = 0; k < kIn; ++k) std::memcpy(&x[k], in[k] + i, sizeof(Vector));
      f(x, y, c);
      std::memcpy(out + i, &y, sizeof(Vector));
    }
    const int64_t tail = block.n - whole;
    if (tail == 0) return;
    for (size_t k = 0; k < kIn; ++k) {
      A padded[kLanes];
      std::fill_n(padded, kLanes, A{1});
      std::copy_n(in[k] + whole, tail, padded);
      std::memcpy(&x[k], padded, sizeof(Vector));
    }
    f(x, y, c);
    A last[kLanes];
    std::memcpy(last, &y, sizeof(Vector));
    std::copy_n(last, tail, out + whole);
  });
}

template <size_t kIn, class F>
constexpr BlockFns floating(F /*f*/) {
  return {run_block<float, kIn, F>, run_block<double, kIn, F>, nullptr};
}
// With integers: for comparisons and choices.
template <size_t kIn, class F>
constexpr BlockFns ordered(F /*f*/) {
  return {run_block<float, kIn, F>, run_block<double, kIn, F>, run_block<int64_t, kIn, F>};
}
// With integers that wrap, as unsigned.
template <size_t kIn, class F>
constexpr BlockFns wrapping(F /*f*/) {
  return {run_block<float, kIn, F>, run_block<double, kIn, F>, run_block<uint64_t, kIn, F>};
}

}  // namespace dtensor::cpu
