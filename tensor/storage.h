// Storage: the bytes behind Tensors. It can be emptied and refilled in place, so that every Tensor
// over it (also one saved for a backward pass) sees the new memory: FSDP frees gathered parameters
// this way. The version counts in-place writes.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/base/allocator.h"

namespace dtensor {

class Storage {
 public:
  // From the Context's allocator; not initialised.
  explicit Storage(int64_t bytes);
  // Memory of somebody else, kept alive by `owner`.
  Storage(void* data, int64_t bytes, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }  // nullptr while empty
  int64_t size_bytes() const { return bytes_; }
  bool is_empty() const { return data_ == nullptr; }
  // Gives the memory back; Tensors over it must not be read until refill().
  void release() noexcept;
  // New memory of the same size, not initialised; nothing to do where it has some.
  void refill();

  uint64_t version() const { return version_; }
  void bump_version() { ++version_; }
  // For a writer that put back the values of that version (a parameter gathered again).
  void restore_version(uint64_t version) { version_ = version; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t version_ = 0;
  std::shared_ptr<Allocator> allocator_;  // of data_; nullptr where somebody else's
  std::shared_ptr<void> owner_;
};

}  // namespace dtensor
