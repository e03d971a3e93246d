// BlockSource: memory that is better than the heap's for something: a world of processes has memory
// that the other ranks of the host read in place. The heap allocator takes large blocks from the
// source that the Context names, where that has room, and from the heap otherwise; who uses a block
// sees no difference.

#pragma once

#include <cstdint>
#include <memory>

#include "dtensor/base/language.h"

namespace dtensor {

// Thread-safe.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual bool has_room(int64_t bytes) const noexcept = 0;
  // Aligned to 64 bytes, not initialised; given back with its last copy, which may be after the
  // source is gone. nullptr where there is no room, or memory is out.
  virtual std::shared_ptr<void> take(int64_t bytes) noexcept = 0;
};

// The Context's slot. Ends with whom the source belongs to.
struct LargeBlocks {
  std::weak_ptr<BlockSource> source = {};
};

}  // namespace dtensor
