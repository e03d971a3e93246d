// KvCache: the keys and values of the positions so far, for generation. Grows by doubling, so that
// appending one position does not copy those before it. Without gradients. Keys and values stay on
// the mesh, and cut, as they came. A cache owns its memory: it is moved, or cloned (beam search).

#pragma once

#include <cstdint>

#include "dtensor/tensor/dtensor.h"

namespace dtensor::nn {

class KvCache {
 public:
  KvCache() = default;
  KvCache(KvCache&&) noexcept = default;
  KvCache& operator=(KvCache&&) noexcept = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache() = default;
  // The same positions in memory of its own.
  [[nodiscard]] KvCache clone() const;

  // k and v [b,t,g,d] of the next t positions. ArgumentError where they differ from the earlier
  // ones in shape (but for t), dtype or placement, or where a gradient is wanted.
  void append(const DTensor& k, const DTensor& v);
  int64_t length() const { return length_; }
  DTensor keys() const { return view(keys_); }  // [b, length(), g, d]: views of the cache
  DTensor values() const { return view(values_); }

 private:
  DTensor view(const Tensor& buffer) const;

  int64_t length_ = 0;
  DTensor first_;  // of the first append: its layout, dtype and mesh
  Tensor keys_;    // local, [b, capacity, g, d]
  Tensor values_;
};

}  // namespace dtensor::nn
