#include "dtensor/comm/algorithms/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {

constexpr int64_t kBlock = 1024;  // elements; the accumulator stays in the first-level cache

template <class T>
constexpr bool kIs16Bit = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// What T is accumulated in.
template <class T>
using Accumulator = std::conditional_t<kIs16Bit<T>, float, T>;

template <ReduceOp kOp, class A>
A combine(A a, A b) {
  if constexpr (std::is_same_v<A, bool>) {
    return kOp == ReduceOp::kMax ? (a || b) : (a && b);
  } else if constexpr (kOp == ReduceOp::kMin || kOp == ReduceOp::kMax) {
    if constexpr (std::is_floating_point_v<A>) {
      if (a != a) return a;
      if (b != b) return b;
    }
    return kOp == ReduceOp::kMin ? (b < a ? b : a) : (a < b ? b : a);
  } else if constexpr (std::is_integral_v<A>) {
    const auto x = static_cast<uint64_t>(a);  // wraps, where A would overflow
    const auto y = static_cast<uint64_t>(b);
    return static_cast<A>(kOp == ReduceOp::kProd ? x * y : x + y);
  } else {
    return kOp == ReduceOp::kProd ? a * b : a + b;
  }
}

template <class T, ReduceOp kOp>
void reduce_block(T* out, std::span<const void* const> operands, int64_t begin, int64_t count) {
  using A = Accumulator<T>;
  std::array<A, kBlock> sum;  // written below before it is read
  const T* first = static_cast<const T*>(operands[0]) + begin;
  for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] = static_cast<A>(first[i]);
  for (size_t k = 1; k < operands.size(); ++k) {
    const T* next = static_cast<const T*>(operands[k]) + begin;
    for (int64_t i = 0; i < count; ++i) {
      A& s = sum[static_cast<size_t>(i)];
      s = combine<kOp>(s, static_cast<A>(next[i]));
    }
  }
  if constexpr (kOp == ReduceOp::kAvg && !std::is_integral_v<A>) {
    const A n = static_cast<A>(operands.size());
    for (int64_t i = 0; i < count; ++i) sum[static_cast<size_t>(i)] /= n;
  }
  for (int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(sum[static_cast<size_t>(i)]);
}

// Few operands at one time, in registers.
template <class T, ReduceOp kOp, size_t kOperands>
void reduce_few(T* out, std::span<const void* const> operands, int64_t count) {
  std::array<const T*, kOperands> in;
  for (size_t k = 0; k < kOperands; ++k) in[k] = static_cast<const T*>(operands[k]);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep  // although `out` may be an operand, no element depends on another
#endif
  for (int64_t i = 0; i < count; ++i) {
    T sum = in[0][i];
    for (size_t k = 1; k < kOperands; ++k) sum = combine<kOp>(sum, in[k][i]);
    if constexpr (kOp == ReduceOp::kAvg && !std::is_integral_v<T>) {
      sum /= static_cast<T>(kOperands);
    }
    out[i] = sum;
  }
}

template <class T, ReduceOp kOp>
void reduce_all(void* out, std::span<const void* const> operands, int64_t count) {
  if constexpr (!kIs16Bit<T>) {
    if (operands.size() == 2) return reduce_few<T, kOp, 2>(static_cast<T*>(out), operands, count);
    if (operands.size() == 3) return reduce_few<T, kOp, 3>(static_cast<T*>(out), operands, count);
    if (operands.size() == 4) return reduce_few<T, kOp, 4>(static_cast<T*>(out), operands, count);
  }
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<T, kOp>(static_cast<T*>(out), operands, begin, std::min(kBlock, count - begin));
  }
}

}  // namespace

void reduce_into(void* out, std::span<const void* const> operands, int64_t count, DType dtype,
                 ReduceOp op) {
  if (count == 0) return;
  internal_check(!operands.empty(), "a reduction of nothing");
  visit_dtype(dtype, [&](auto value) {
    using T = decltype(value);
    switch (op) {
      case ReduceOp::kSum:
        return reduce_all<T, ReduceOp::kSum>(out, operands, count);
      case ReduceOp::kAvg:
        return reduce_all<T, ReduceOp::kAvg>(out, operands, count);
      case ReduceOp::kMin:
        return reduce_all<T, ReduceOp::kMin>(out, operands, count);
      case ReduceOp::kMax:
        return reduce_all<T, ReduceOp::kMax>(out, operands, count);
      case ReduceOp::kProd:
        return reduce_all<T, ReduceOp::kProd>(out, operands, count);
    }
  });
}

}  // namespace dtensor::comm
