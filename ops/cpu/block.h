// Row-major blocks of memory that products read and write.

#pragma once

#include <cstdint>

namespace dtensor::cpu {

enum class Op : char { kNone = 'N', kTranspose = 'T' };

struct GemmSize {
  int64_t m;
  int64_t n;
  int64_t k;
};

template <class T>
struct Block {
  const T* data;
  int64_t pitch;  // elements from one stored row to the next
  Op op = Op::kNone;
};

template <class T>
struct OutBlock {
  T* data;
  int64_t pitch;
};

template <class T>
struct GemmScale {
  T alpha = 1;
  T beta = 0;
};

}  // namespace dtensor::cpu
