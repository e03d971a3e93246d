// Allocator: where Storage takes its memory from. The Context's slot `CurrentAllocator` names the
// one in use; the default takes it from the C++ heap, aligned to 64 bytes, keeps what is freed for
// the next request of that size, and counts.

#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

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
  // Aligned to 64 bytes; never null, also for 0 bytes. When memory is out: Error that names rank,
  // request, live and peak bytes, and the ops whose results hold the most.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void deallocate(void* data, int64_t bytes) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  // Also gives back what is kept.
  virtual void reset_peak() = 0;
};

struct AllocatorOptions {
  // Memory is out where more than this would be live.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
};
// Keeps freed blocks for requests of the same size. Small ones go through the thread's lists
// (dtensor/base/small_memory.h), without a lock.
std::shared_ptr<Allocator> make_heap_allocator(const AllocatorOptions& options = {});

// The Context's slot. A Storage keeps the allocator that it came from alive.
struct CurrentAllocator {
  std::shared_ptr<Allocator> allocator = make_heap_allocator();
};

// The Context's slot: who asks for memory, for the text of that error.
struct MemoryUser {
  std::string_view op = {};  // the op that runs; outlives its run
  int rank = 0;              // of the root Comm
};

}  // namespace dtensor
