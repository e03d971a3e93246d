#include "dtensor/checkpoint/stage.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/stream_copy.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::checkpoint {
namespace {

constexpr int64_t kAlignment = 64;  // as memory of the allocator has it

void copy_to(const Tensor& from, std::byte* to) {
  if (from.is_contiguous()) {
    stream_copy(to, static_cast<const std::byte*>(from.raw()),
                static_cast<size_t>(from.size_bytes()));
  } else {
    kernels::copy(from, Tensor::wrap(to, from.shape(), from.dtype(), nullptr));
  }
}

}  // namespace

void Stage::take(SavePlan& plan) {
  // The one that was used last and is free again lies warmest in memory; the second one is made
  // only where two saves are under way.
  const auto buffer =
      std::ranges::find_if(buffers_, [](const Buffer& b) { return b.use.expired(); });
  internal_check(buffer != buffers_.end(), "checkpoint: no buffer is free for another save");
  if (plan.files.empty()) return;
  const int64_t bytes = plan.data_bytes() + kAlignment * std::ssize(plan.files);
  Tensor& memory = buffer->memory;
  if (!memory.defined() || memory.size_bytes() < bytes) {
    memory = Tensor();  // before its successor is made
    memory = Tensor::empty({bytes}, DType::kUInt8);
  }
  const auto use = std::make_shared<Tensor>(memory);
  buffer->use = use;
  int64_t used = 0;
  for (PlannedFile& file : plan.files) {
    std::byte* const begin = static_cast<std::byte*>(memory.raw()) + used;
    std::byte* at = begin;
    for (const Tensor& part : file.parts) {
      copy_to(part, at);
      at += part.size_bytes();
    }
    used += (at - begin + kAlignment - 1) / kAlignment * kAlignment;
    file.parts = {Tensor::wrap(begin, {at - begin}, DType::kUInt8, use)};
  }
}

void Stage::release() {
  for (Buffer& b : buffers_) {
    if (b.use.expired()) b.memory = Tensor();
  }
}

}  // namespace dtensor::checkpoint
