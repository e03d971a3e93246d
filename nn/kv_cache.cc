#include "dtensor/nn/kv_cache.h"

#include <algorithm>

#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::nn {
namespace {

constexpr int kTimeDim = 1;

Shape with_time(Shape shape, int64_t time) {
  shape[kTimeDim] = time;
  return shape;
}

void check(const DTensor& first, const DTensor& t) {
  if (t.ndim() != 4) throw ArgumentError("KvCache: " + to_string(t.shape()) + " is not [b,t,g,d]");
  if (grad_enabled() && t.requires_grad()) {
    throw ArgumentError("KvCache: a gradient is wanted; generate under NoGrad");
  }
  if (!t.layout().spec().levels(kTimeDim).empty()) {
    throw PlacementError("KvCache: the time dim is cut; redistribute it to R first");
  }
  const bool same = with_time(first.shape(), 0) == with_time(t.shape(), 0) &&
                    first.dtype() == t.dtype() && first.spec() == t.spec();
  if (!same) {
    throw ArgumentError("KvCache: " + to_string(t.shape()) + " after " + to_string(first.shape()) +
                        "; shapes (but for t), dtypes and placements must be equal");
  }
}

// Room for `needed` positions, with the first `used` kept.
void grow(Tensor& buffer, const Tensor& piece, int64_t used, int64_t needed) {
  constexpr int64_t kFirst = 64;
  const int64_t capacity = buffer.defined() ? buffer.size(kTimeDim) : 0;
  if (needed <= capacity) return;
  const int64_t wanted = std::max({needed, 2 * capacity, kFirst});
  Tensor bigger = Tensor::empty(with_time(piece.shape(), wanted), piece.dtype());
  if (used > 0) {
    kernels::copy(buffer.narrow(kTimeDim, 0, used), bigger.narrow(kTimeDim, 0, used));
  }
  buffer = bigger;
}

}  // namespace

void KvCache::append(const DTensor& k, const DTensor& v) {
  const DTensor first = first_.defined() ? first_ : k.detach();
  check(first, k);
  check(first, v);
  first_ = first;
  const int64_t t = k.size(kTimeDim);
  if (first_.has_local()) {
    grow(keys_, k.local_tensor(), length_, length_ + t);
    grow(values_, v.local_tensor(), length_, length_ + t);
    kernels::copy(k.local_tensor(), keys_.narrow(kTimeDim, length_, t));
    kernels::copy(v.local_tensor(), values_.narrow(kTimeDim, length_, t));
  }
  length_ += t;
}

KvCache KvCache::clone() const {
  KvCache copy;
  copy.length_ = length_;
  copy.first_ = first_;
  if (keys_.defined()) copy.keys_ = keys_.narrow(kTimeDim, 0, length_).clone();
  if (values_.defined()) copy.values_ = values_.narrow(kTimeDim, 0, length_).clone();
  return copy;
}

DTensor KvCache::view(const Tensor& buffer) const {
  if (!first_.defined()) throw ArgumentError("KvCache: nothing was appended yet");
  const Layout layout(first_.spec(), with_time(first_.shape(), length_));
  const Tensor local = buffer.defined() ? buffer.narrow(kTimeDim, 0, length_) : Tensor();
  return first_.mesh().defined() ? DTensor(local, layout, first_.mesh()) : DTensor(local);
}

}  // namespace dtensor::nn
