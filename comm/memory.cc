#include "dtensor/comm/memory.h"

#include <fmt/format.h>

#include <new>

#include "dtensor/base/error.h"

namespace dtensor::comm {
namespace {
constexpr std::align_val_t kAlignment{64};
}  // namespace

Memory Memory::of_heap(int64_t bytes) {
  if (bytes < 0) throw ArgumentError(fmt::format("allocate: {} bytes", bytes));
  void* data = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  if (data == nullptr) throw Error(fmt::format("out of memory: allocate of {} bytes", bytes));
  return {std::shared_ptr<void>(data, [](void* p) { ::operator delete(p, kAlignment); }), bytes};
}

Buffer Memory::buffer(int64_t count, DType dtype) const {
  if (count < 0 || count > bytes_ / size_of(dtype)) {
    throw ArgumentError(
        fmt::format("a buffer of {} {} in memory of {} bytes", count, name_of(dtype), bytes_));
  }
  return {data_.get(), count, dtype, {}, data_};
}

}  // namespace dtensor::comm
