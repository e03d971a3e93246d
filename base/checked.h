// Arithmetic on sizes that throws ArgumentError instead of overflowing.

#pragma once

#include <cstdint>

#include "dtensor/base/error.h"

namespace dtensor {

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw ArgumentError("size " + std::to_string(a) + " + " + std::to_string(b) +
                        " does not fit in 64 bits");
  }
  return sum;
}

inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw ArgumentError("size " + std::to_string(a) + " * " + std::to_string(b) +
                        " does not fit in 64 bits");
  }
  return product;
}

}  // namespace dtensor
