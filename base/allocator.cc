#include "dtensor/base/allocator.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

constexpr std::align_val_t kAlignment{64};

// Smaller blocks the C++ heap keeps itself; larger ones it gives back to the kernel, and every page
// of the next one is a fault, which costs more than most kernels' work on it.
constexpr int64_t kSmallestKept = 128 * 1024;

// Address sanitizer finds the use of freed memory only where it is freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif
#else
constexpr bool kKeeps = true;
#endif

void free_block(void* data) noexcept { ::operator delete(data, kAlignment); }

// Keeps freed blocks for requests of the same size. What is live and what is kept never exceed the
// peak of what was live: the oldest blocks go first.
class HeapAllocator final : public Allocator {
 public:
  ~HeapAllocator() override { keep_at_most(0); }

  void* allocate(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    void* data = take_kept(bytes);
    if (data == nullptr && bytes >= 0) {
      keep_at_most(peak_ - live_ - bytes);
      data = ::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)), kAlignment,
                            std::nothrow);
    }
    if (data == nullptr) {
      throw Error("out of memory: asked for " + std::to_string(bytes) + " bytes with " +
                  std::to_string(live_) + " live (peak " + std::to_string(peak_) + ")");
    }
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    ++allocations_;
    return data;
  }

  void deallocate(void* data, int64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    live_ -= bytes;
    if (!kKeeps || bytes < kSmallestKept) return free_block(data);
    try {
      kept_.push_back({data, bytes});
      kept_bytes_ += bytes;
    } catch (const std::bad_alloc&) {
      free_block(data);
    }
  }

  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return {live_, peak_, allocations_, live_ + kept_bytes_};
  }

  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    keep_at_most(0);
    peak_ = live_;
  }

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };

  // The newest kept block of this size, which the caches may still hold; null where there is none.
  void* take_kept(int64_t bytes) {
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](const Block& block) { return block.bytes == bytes; });
    if (found == kept_.rend()) return nullptr;
    void* data = found->data;
    kept_.erase(std::next(found).base());
    kept_bytes_ -= bytes;
    return data;
  }

  void keep_at_most(int64_t bytes) noexcept {
    size_t gone = 0;
    for (; kept_bytes_ > bytes && gone < kept_.size(); ++gone) {
      free_block(kept_[gone].data);
      kept_bytes_ -= kept_[gone].bytes;
    }
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(gone));
  }

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Block> kept_;  // oldest first
  int64_t kept_bytes_ = 0;
  int64_t live_ = 0;
  int64_t peak_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace

std::shared_ptr<Allocator> make_heap_allocator() { return std::make_shared<HeapAllocator>(); }

}  // namespace dtensor
