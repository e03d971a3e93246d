// Neighbours: the ranks of a world that share this rank's host, and their memory. Made once per
// world; all its Comms share it.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "dtensor/base/deadline.h"
#include "dtensor/comm/shm/arena.h"
#include "dtensor/comm/shm/shared_blocks.h"
#include "dtensor/comm/shm/slot.h"
#include "dtensor/comm/store.h"

namespace dtensor::comm::shm {

struct NeighbourOptions {
  int rank = 0;
  int size = 1;
  std::string host;         // which machine: ranks with one name share memory
  std::string key_prefix;   // of the world's keys in the store
  int64_t arena_bytes = 0;  // room for what allocate() gives; 0: no shared memory
  Deadline deadline = {};
};

// The value of the URL option "shm": "on" (as much as the machine has), "off" (0), or bytes.
// ArgumentError for another one.
int64_t parse_arena_bytes(std::string_view value);

// Thread-safe.
class Neighbours {
 public:
  // Maps the memory of the other ranks of this host; called by all ranks of the world. Descriptors
  // go over Unix sockets without a name in the file system, to processes of this user that have
  // read this rank's key in the store. If one rank of the host is without, or the system refuses it
  // something, all ranks of the host go without (nullptr) at once, and one line is logged. Error
  // where a rank does not come by the deadline.
  static std::shared_ptr<Neighbours> meet(Store& store, const NeighbourOptions& options);

  // Are all of these ranks of the world on this host?
  bool have(std::span<const int> world_ranks) const;
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  // Ends with the last Comm of the world, its blocks when they are let go.
  const std::shared_ptr<SharedBlocks>& blocks() const { return blocks_; }

  // This rank's Slot of a Comm of these ranks; Error where there are too many Comms.
  Slot& open(uint64_t comm, std::span<const int> world_ranks);
  // The owner makes no more calls. The slot is used again when all of its ranks have closed theirs.
  void close(uint64_t comm) noexcept;

  // The Slot of another rank; `slot` is nullptr while it has none.
  struct Found {
    const Slot* slot = nullptr;
    const Directory::Entry* entry = nullptr;
  };
  Found find(int world_rank, uint64_t comm, int ranks) const;
  // Was it still the Slot of this Comm when what this rank has read of it so far was read? A rank
  // uses the memory of one that it has closed again where another was late to open its own.
  bool holds(const Found& found, int world_rank, uint64_t comm) const;
  // The memory of another rank at an offset that it gave; nullptr where that is outside.
  const std::byte* at(int world_rank, int64_t offset, int64_t bytes) const;

 private:
  Neighbours(const NeighbourOptions& options, std::shared_ptr<Arena> arena,
             std::vector<Mapping> others);
  Directory& directory() const { return *reinterpret_cast<Directory*>(arena_->base()); }
  const std::byte* base_of(int world_rank) const;
  int64_t size_of_arena(int world_rank) const;

  struct Closed {
    uint64_t comm;
    Directory::Entry* entry;
    std::vector<int> world_ranks;
  };
  bool all_closed(const Closed& slot) const;
  void reuse_closed();  // with mutex_ held

  const int rank_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<SharedBlocks> blocks_;
  const std::vector<Mapping> others_;  // by rank of the world; empty for other hosts and this rank

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Closed> open_;
  std::vector<Closed> closed_;
  std::vector<Directory::Entry*> vacant_;
};

}  // namespace dtensor::comm::shm
