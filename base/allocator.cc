#include "dtensor/base/allocator.h"

#include <algorithm>
#include <new>
#include <string>

#include "dtensor/base/error.h"

namespace dtensor {
namespace {

constexpr std::align_val_t kAlignment{64};

class HeapAllocator final : public Allocator {
 public:
  void* allocate(int64_t bytes) override {
    void* data = bytes < 0 ? nullptr
                           : ::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                                            kAlignment, std::nothrow);
    if (data == nullptr) {
      throw Error("out of memory: asked for " + std::to_string(bytes) + " bytes with " +
                  std::to_string(live_.load()) + " live (peak " + std::to_string(peak_.load()) +
                  ")");
    }
    const int64_t live = live_ += bytes;
    int64_t peak = peak_.load();
    while (peak < live && !peak_.compare_exchange_weak(peak, live)) {
    }
    ++allocations_;
    return data;
  }
  void deallocate(void* data, int64_t bytes) noexcept override {
    live_ -= bytes;
    ::operator delete(data, kAlignment);
  }
  AllocatorStats stats() const override { return {live_, peak_, allocations_}; }
  void reset_peak() override { peak_ = live_.load(); }

 private:
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> allocations_{0};
};

}  // namespace

std::shared_ptr<Allocator> make_heap_allocator() { return std::make_shared<HeapAllocator>(); }

}  // namespace dtensor
