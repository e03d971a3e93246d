// Small memory: blocks for what is made and dropped with every op: handles, graph nodes, closures,
// the elements of small tensors. A freed block goes to a list of the thread that frees it and comes
// back from there, without a lock; lists are bounded. It is a cache of memory and holds no state of
// a rank.

#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "dtensor/base/language.h"

namespace dtensor {

// Larger blocks go straight to the C++ heap.
inline constexpr size_t kMostSmallBytes = 4096;

// Aligned to 64 bytes; never null. std::bad_alloc when memory is out.
void* small_allocate(size_t bytes);
// `bytes` as it was allocated; by any thread.
void small_deallocate(void* data, size_t bytes) noexcept;

// For containers and std::allocate_shared.
template <class T>
struct SmallAllocator {
  using value_type = T;
  SmallAllocator() = default;
  template <class U>
  SmallAllocator(const SmallAllocator<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(size_t n) {
    static_assert(alignof(T) <= 64);
    return static_cast<T*>(small_allocate(n * sizeof(T)));
  }
  void deallocate(T* data, size_t n) noexcept { small_deallocate(data, n * sizeof(T)); }
  friend bool operator==(const SmallAllocator&, const SmallAllocator&) { return true; }
};

template <class T, class... Arguments>
std::shared_ptr<T> make_small(Arguments&&... arguments) {
  return std::allocate_shared<T>(SmallAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace dtensor
