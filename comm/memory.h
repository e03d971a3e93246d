// Memory: what Comm::allocate gives. Copies share it; it is freed with the last of them, which may
// be long after its Comm. As a Buffer it is its own owner, so that a Work keeps it.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/comm/types.h"

namespace dtensor::comm {

class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<void> data, int64_t bytes) : data_(std::move(data)), bytes_(bytes) {}
  // Of this process alone, aligned to 64 bytes. Error where memory is out.
  static Memory of_heap(int64_t bytes);

  void* data() const { return data_.get(); }
  int64_t size_bytes() const { return bytes_; }
  const std::shared_ptr<void>& owner() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  // Its first `count` elements; ArgumentError where it has less.
  Buffer buffer(int64_t count, DType dtype) const;

 private:
  std::shared_ptr<void> data_;
  int64_t bytes_ = 0;
};

}  // namespace dtensor::comm
