#include "dtensor/tensor/storage.h"

#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"

namespace dtensor {

Storage::Storage(int64_t bytes) : bytes_(bytes) {
  if (bytes < 0) throw ArgumentError("a storage of " + std::to_string(bytes) + " bytes");
  refill();
}

Storage::Storage(void* data, int64_t bytes, std::shared_ptr<void> owner)
    : data_(data), bytes_(bytes), owner_(std::move(owner)) {
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    throw ArgumentError("a storage of " + std::to_string(bytes) + " bytes over memory at " +
                        (data == nullptr ? "nullptr" : "an address"));
  }
}

Storage::~Storage() { release(); }

void Storage::release() noexcept {
  if (data_ != nullptr && allocator_ != nullptr) allocator_->deallocate(data_, bytes_);
  data_ = nullptr;
  owner_ = nullptr;
}

void Storage::refill() {
  if (data_ != nullptr) return;
  if (allocator_ == nullptr) allocator_ = Context::current().slot<CurrentAllocator>().allocator;
  data_ = allocator_->allocate(bytes_);
}

}  // namespace dtensor
