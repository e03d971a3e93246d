// map: an elementwise function over strided, broadcast operands of one dtype, vectorised.
//   map<float, 2, 1>(shape, {&a, &b}, {&out}, [](const auto& x, auto& y) { y[0] = x[0] + x[1]; });
// The function gets arrays of vectors (simd.h). A tail shorter than a vector is padded and goes
// through the same instructions, so that an element's bits do not depend on where it stands.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "dtensor/ops/cpu/simd.h"
#include "dtensor/ops/cpu/strided.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor::cpu {

// fn over `n` elements of contiguous arrays. An output may be an input.
template <class Isa, class T, size_t kIn, size_t kOut, class Fn>
DTENSOR_INLINE void map_run(int64_t n, std::array<const T*, kIn> in, std::array<T*, kOut> out,
                            const Fn& fn) {
  constexpr int kLanes = Isa::template lanes<simd::Compute<T>>();
  using Vector = simd::V<Isa, simd::Compute<T>>;
  T in_tail[kIn][kLanes];
  T out_tail[kOut][kLanes];
  T* out_end[kOut] = {};
  const int64_t whole = n / kLanes * kLanes;
  const int64_t tail = n - whole;
  int64_t count = whole;
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t i = 0; i < count; i += kLanes) {
      Vector x[kIn];
      Vector y[kOut];
      for (size_t k = 0; k < kIn; ++k) x[k] = simd::load<kLanes>(in[k] + i);
      fn(x, y);
      for (size_t k = 0; k < kOut; ++k) simd::store<kLanes>(out[k] + i, y[k]);
    }
    if (pass == 1 || tail == 0) break;
    for (size_t k = 0; k < kIn; ++k) {
      std::fill_n(in_tail[k], kLanes, T{});
      std::copy_n(in[k] + whole, tail, in_tail[k]);
      in[k] = in_tail[k];
    }
    for (size_t k = 0; k < kOut; ++k) {
      out_end[k] = out[k] + whole;
      out[k] = out_tail[k];
    }
    count = kLanes;
  }
  if (tail == 0) return;
  for (size_t k = 0; k < kOut; ++k) std::copy_n(out_tail[k], tail, out_end[k]);
}

// fn over all elements of `shape`: inputs are broadcast to it, outputs are contiguous and have it.
template <class T, size_t kIn, size_t kOut, class Fn>
void map(const Shape& shape, const std::array<const Tensor*, kIn>& inputs,
         const std::array<const Tensor*, kOut>& outputs, const Fn& fn) {
  if (shape.numel() == 0) return;
  StridedLoop<kIn> loop{shape, {}};
  std::array<const T*, kIn> in;
  std::array<T*, kOut> out;
  for (size_t k = 0; k < kIn; ++k) {
    loop.strides[k] = broadcast_strides(*inputs[k], shape);
    in[k] = inputs[k]->template data<T>();
  }
  for (size_t k = 0; k < kOut; ++k) out[k] = outputs[k]->template data<T>();
  loop.merge();
  std::array<int64_t, kIn> step;
  for (size_t k = 0; k < kIn; ++k) step[k] = loop.strides[k].back();
  const bool direct = std::ranges::all_of(step, [](int64_t s) { return s == 1; });
  // Runs that are strided or repeat one element are gathered block by block.
  constexpr int64_t kBlock = 512;

  loop.for_runs([&](int64_t begin, const std::array<int64_t, kIn>& at, int64_t length) {
    T gathered[kIn][kBlock];
    const int64_t block = direct ? length : kBlock;
    for (int64_t done = 0; done < length; done += block) {
      const int64_t n = std::min(block, length - done);
      std::array<const T*, kIn> from;
      std::array<T*, kOut> to;
      for (size_t k = 0; k < kIn; ++k) {
        from[k] = in[k] + at[k] + done * step[k];
        if (step[k] == 1) continue;
        for (int64_t i = 0; i < n; ++i) gathered[k][i] = from[k][i * step[k]];
        from[k] = gathered[k];
      }
      for (size_t k = 0; k < kOut; ++k) to[k] = out[k] + begin + done;
      simd::dispatch([&](auto isa) { map_run<decltype(isa)>(n, from, to, fn); });
    }
  });
}

}  // namespace dtensor::cpu
