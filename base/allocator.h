// Allocator: where Storage takes its memory from. The Context's slot `CurrentAllocator` names the
// one in use; the default takes it from the C++ heap, aligned to 64 bytes, and counts.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/base/language.h"

namespace dtensor {

struct AllocatorStats {
  int64_t live_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t allocations = 0;
  int64_t held_bytes = 0;  // live, or kept for the next request; at most peak_bytes
};

// Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Aligned to 64 bytes; never null, also for 0 bytes. Throws Error naming the request and the
  // live bytes when memory is out.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void deallocate(void* data, int64_t bytes) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  // Also gives back what is kept.
  virtual void reset_peak() = 0;
};

std::shared_ptr<Allocator> make_heap_allocator();

// The Context's slot. A Storage keeps the allocator that it came from alive.
struct CurrentAllocator {
  std::shared_ptr<Allocator> allocator = make_heap_allocator();
};

}  // namespace dtensor
