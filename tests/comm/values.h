// What the tests of Comms send: views of vectors, ragged counts, small exact numbers.

#pragma once

#include <cstdint>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/comm/types.h"

namespace dtensor::testing {

// A view of a vector's memory. (A vector<bool> has none.)
template <class T>
comm::Buffer view(std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}
template <class T>
comm::ConstBuffer view(const std::vector<T>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), kDTypeOf<T>};
}

// Of rank r: r + 2 elements, every third rank from 1 on none: 2,0,4,5,0,7,8.
inline std::vector<int64_t> ragged_counts(int size) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : r + 2);
  return counts;
}

inline int64_t total(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (const int64_t c : counts) sum += c;
  return sum;
}

// What rank `r` has at index i: -4..6, so that sums and products of a few are exact in any dtype
// that can hold them.
inline int value_at(int r, int64_t i) { return static_cast<int>((i * 7 + r * 3) % 11) - 4; }

template <class T>
std::vector<T> values_of(int r, int64_t count) {
  std::vector<T> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(T(static_cast<float>(value_at(r, i))));
  return v;
}

}  // namespace dtensor::testing
