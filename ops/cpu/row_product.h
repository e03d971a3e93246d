// One row by the rows of a transposed matrix: c[j] = a · row j of b. Generating a token does so
// with every weight, which is as fast as memory is read.

#pragma once

#include <cstdint>

#include "dtensor/base/dtype.h"

namespace dtensor::cpu {

template <class T>
struct RowProduct {
  const T* a;
  const T* b;
  int64_t pitch;  // elements from one row of b to the next
  int64_t n;      // rows of b
  int64_t k;      // elements of a, and of each row of b
  T* c;
};

// On the calling thread. Summed in f32, bf16 rounded once; each c[j] by the same instructions
// wherever its row stands.
void row_product(const RowProduct<float>& p);
void row_product(const RowProduct<BFloat16>& p);

}  // namespace dtensor::cpu
