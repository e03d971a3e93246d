#include "dtensor/base/small_memory.h"

#include <array>
#include <cstdint>
#include <new>

#include "dtensor/base/address_sanitizer.h"

namespace dtensor {
namespace {

constexpr size_t kStep = 64;
constexpr size_t kClasses = kMostSmallBytes / kStep + 1;
constexpr std::align_val_t kAlignment{kStep};

// Blocks of one class that a thread keeps: 1 MiB of those up to 1 KiB, else 256 KiB.
constexpr uint32_t most_kept(size_t index) {
  const size_t bytes = index * kStep;
  return static_cast<uint32_t>((bytes <= 1024 ? (1U << 20) : (1U << 18)) / (bytes + 1));
}

struct FreeBlock {
  FreeBlock* next;
};

enum class Phase : uint8_t { kFresh, kOpen, kClosed };

struct Lists {
  std::array<FreeBlock*, kClasses> first{};
  std::array<uint32_t, kClasses> count{};
  Phase phase = Phase::kFresh;
};

// Of this thread. Needs no destructor, so that what other thread-local objects free after `closer`
// still finds it.
constinit thread_local Lists lists;

struct Closer {
  Closer() { lists.phase = Phase::kOpen; }
  ~Closer() {
    lists.phase = Phase::kClosed;
    for (FreeBlock*& head : lists.first) {
      while (head != nullptr) ::operator delete(std::exchange(head, head->next), kAlignment);
    }
  }
};

void open() { static thread_local const Closer kCloser; }

size_t class_of(size_t bytes) { return bytes == 0 ? 1 : (bytes + kStep - 1) / kStep; }

}  // namespace

void* small_allocate(size_t bytes) {
  const size_t index = class_of(bytes);
  if (index >= kClasses) return ::operator new(bytes, kAlignment);
  if (FreeBlock* block = lists.first[index]; block != nullptr) {
    lists.first[index] = block->next;
    --lists.count[index];
    return block;
  }
  return ::operator new(index* kStep, kAlignment);
}

void small_deallocate(void* data, size_t bytes) noexcept {
  const size_t index = class_of(bytes);
  if (!kAddressSanitizer && index < kClasses && lists.count[index] < most_kept(index)) {
    if (lists.phase == Phase::kFresh) open();
    if (lists.phase == Phase::kOpen) {
      lists.first[index] = new (data) FreeBlock{lists.first[index]};
      ++lists.count[index];
      return;
    }
  }
  ::operator delete(data, kAlignment);
}

}  // namespace dtensor
