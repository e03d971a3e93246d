// Runs: the contiguous stretches in which a part of a box lies, in two row-major arrays at once.
// Internal.

#pragma once

#include <cstdint>
#include <functional>

#include "dtensor/base/shape.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

struct BoxRun {
  int64_t src = 0;  // of its first element in the array of `src`'s box
  int64_t dst = 0;
  int64_t count = 0;
};

// Calls f for every run of `part`, which lies inside both boxes, in row-major order: src and dst
// ascend. Neighbouring elements are one run where they are neighbours in both.
inline void for_each_run(const Box& part, const Box& src, const Box& dst,
                         const std::function<void(const BoxRun&)>& f) {
  if (part.empty()) return;
  // The dims behind `inner` are taken whole in both arrays, so that a run spans them.
  int inner = part.size.ndim() - 1;
  int64_t count = 1;
  while (inner >= 0) {
    count *= part.size[inner];
    if (part.size[inner] != src.size[inner] || part.size[inner] != dst.size[inner]) break;
    --inner;
  }
  const Shape src_strides = contiguous_strides(src.size);
  const Shape dst_strides = contiguous_strides(dst.size);
  Shape at = part.offset;
  while (true) {
    BoxRun run{0, 0, count};
    for (int d = 0; d < at.ndim(); ++d) {
      run.src += (at[d] - src.offset[d]) * src_strides[d];
      run.dst += (at[d] - dst.offset[d]) * dst_strides[d];
    }
    f(run);
    int d = inner - 1;
    for (; d >= 0; --d) {
      if (++at[d] < part.offset[d] + part.size[d]) break;
      at[d] = part.offset[d];
    }
    if (d < 0) return;
  }
}

}  // namespace dtensor::checkpoint
