// BoxRuns: the contiguous stretches in which a part of a box lies, in two row-major arrays at once.
// Nothing is listed: a run is computed when it is asked for. Internal.

#pragma once

#include <algorithm>
#include <cstdint>

#include "dtensor/base/shape.h"
#include "dtensor/placement/layout.h"

namespace dtensor::checkpoint {

struct BoxRun {
  int64_t src = 0;  // of its first element in the array of `src`'s box
  int64_t dst = 0;
  int64_t count = 0;
};

class BoxRuns {
 public:
  // `part` lies inside both boxes. Neighbouring elements are one run where they are neighbours in
  // both arrays.
  BoxRuns(const Box& part, const Box& src, const Box& dst);

  // Every run that has elements of [begin, end) of src's array, cut to them, in row-major order:
  // src and dst ascend.
  template <class F>
  void for_each_in(int64_t begin, int64_t end, F&& f) const;
  // The run that has this element of src's array, from that element on; of count 0 where none has.
  BoxRun at(int64_t element) const;

  // Calls f(begin, end) for stretches of src's array that hold all runs, ascending; gaps of at most
  // `gap` elements are taken in.
  template <class F>
  void for_each_span(int64_t gap, F&& f) const;

 private:
  // The last run that begins at or before an element, and its place along the outer dims.
  BoxRun seek(int64_t element, Shape& at) const;
  // Moves to the next run; false behind the last one. The dims from `ndim` on stay.
  bool next(Shape& at, BoxRun& run, int ndim) const;

  BoxRun first_;
  int64_t src_end_ = 0;
  Shape outer_;  // how many runs along each dim that is not inside a run
  Shape src_strides_;
  Shape dst_strides_;
};

inline BoxRuns::BoxRuns(const Box& part, const Box& src, const Box& dst) {
  // The dims behind `inner` are taken whole in both arrays, so that a run spans them.
  int inner = part.size.ndim() - 1;
  first_.count = 1;
  while (inner >= 0) {
    first_.count *= part.size[inner];
    if (part.size[inner] != src.size[inner] || part.size[inner] != dst.size[inner]) break;
    --inner;
  }
  if (part.empty()) {
    first_.count = 0;
    return;
  }
  const Shape src_strides = contiguous_strides(src.size);
  const Shape dst_strides = contiguous_strides(dst.size);
  for (int d = 0; d < part.size.ndim(); ++d) {
    first_.src += (part.offset[d] - src.offset[d]) * src_strides[d];
    first_.dst += (part.offset[d] - dst.offset[d]) * dst_strides[d];
    if (d >= inner) continue;
    outer_.push_back(part.size[d]);
    src_strides_.push_back(src_strides[d]);
    dst_strides_.push_back(dst_strides[d]);
  }
  src_end_ = first_.src + first_.count;
  for (int d = 0; d < outer_.ndim(); ++d) src_end_ += (outer_[d] - 1) * src_strides_[d];
}

inline bool BoxRuns::next(Shape& at, BoxRun& run, int ndim) const {
  for (int d = ndim - 1; d >= 0; --d) {
    run.src += src_strides_[d];
    run.dst += dst_strides_[d];
    if (++at[d] < outer_[d]) return true;
    run.src -= outer_[d] * src_strides_[d];
    run.dst -= outer_[d] * dst_strides_[d];
    at[d] = 0;
  }
  return false;
}

inline BoxRun BoxRuns::seek(int64_t element, Shape& at) const {
  // The digits of its distance in the mixed radix of the strides.
  at = Shape::filled(outer_.ndim(), 0);
  BoxRun run = first_;
  int64_t left = std::max<int64_t>(element - first_.src, 0);
  for (int d = 0; d < outer_.ndim(); ++d) {
    at[d] = std::min(left / src_strides_[d], outer_[d] - 1);
    left -= at[d] * src_strides_[d];
    run.src += at[d] * src_strides_[d];
    run.dst += at[d] * dst_strides_[d];
  }
  return run;
}

inline BoxRun BoxRuns::at(int64_t element) const {
  Shape at;
  const BoxRun run = seek(element, at);
  const int64_t skipped = element - run.src;
  if (skipped < 0 || skipped >= run.count) return {};
  return {element, run.dst + skipped, run.count - skipped};
}

template <class F>
void BoxRuns::for_each_in(int64_t begin, int64_t end, F&& f) const {
  if (first_.count == 0 || begin >= src_end_ || end <= first_.src) return;
  Shape at;
  BoxRun run = seek(begin, at);
  do {
    if (run.src >= end) return;
    const int64_t from = std::max(run.src, begin);
    const int64_t to = std::min(run.src + run.count, end);
    if (from < to) f(BoxRun{from, run.dst + from - run.src, to - from});
  } while (next(at, run, outer_.ndim()));
}

template <class F>
void BoxRuns::for_each_span(int64_t gap, F&& f) const {
  if (first_.count == 0) return;
  int ndim = outer_.ndim();
  int64_t length = first_.count;
  while (ndim > 0 && src_strides_[ndim - 1] - length <= gap) {
    length += (outer_[ndim - 1] - 1) * src_strides_[ndim - 1];
    --ndim;
  }
  Shape at = Shape::filled(outer_.ndim(), 0);
  BoxRun run = first_;
  do {
    f(run.src, run.src + length);
  } while (next(at, run, ndim));
}

}  // namespace dtensor::checkpoint
