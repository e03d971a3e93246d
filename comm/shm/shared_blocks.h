// SharedBlocks: the part of a rank's arena that Comm::allocate and the Context's allocator share:
// blocks that the other ranks of the host read in place. Its bound leaves room beside it for what
// Comms themselves need.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/base/block_source.h"
#include "dtensor/comm/shm/arena.h"

namespace dtensor::comm::shm {

class SharedBlocks : public BlockSource {
 public:
  // At most `most_bytes` of whole pages at one time.
  SharedBlocks(std::shared_ptr<Arena> arena, int64_t most_bytes);

  bool has_room(int64_t bytes) const noexcept override;
  // A block keeps the arena.
  std::shared_ptr<void> take(int64_t bytes) noexcept override;

 private:
  struct Room;  // shared by the blocks
  const std::shared_ptr<Room> room_;
};

}  // namespace dtensor::comm::shm
