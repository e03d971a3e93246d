#include "dtensor/comm/shm/shared_blocks.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

namespace dtensor::comm::shm {

struct SharedBlocks::Room {
  std::shared_ptr<Arena> arena;
  std::atomic<int64_t> left;
};

SharedBlocks::SharedBlocks(std::shared_ptr<Arena> arena, int64_t most_bytes)
    : room_(new Room{std::move(arena), most_bytes}) {}

bool SharedBlocks::has_room(int64_t bytes) const noexcept {
  return whole_pages(bytes) <= room_->left.load(std::memory_order_relaxed);
}

std::shared_ptr<void> SharedBlocks::take(int64_t bytes) noexcept {
  if (!has_room(bytes)) return nullptr;
  const int64_t size = whole_pages(std::max<int64_t>(bytes, 1));
  Room& room = *room_;
  if (room.left.fetch_sub(size, std::memory_order_relaxed) < size) {
    room.left.fetch_add(size, std::memory_order_relaxed);
    return nullptr;
  }
  void* data = room.arena->allocate(bytes, Arena::For::kUsers);
  if (data == nullptr) {
    room.left.fetch_add(size, std::memory_order_relaxed);
    return nullptr;
  }
  try {
    // The deleter also runs where this throws.
    return {data, [room = room_, bytes, size](void* p) {
              room->arena->deallocate(p, bytes);
              room->left.fetch_add(size, std::memory_order_relaxed);
            }};
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace dtensor::comm::shm
