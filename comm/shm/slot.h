// Slot: what one rank shows the others of its host about one Comm: the call that it is in, small
// data, where its large data lies, and how far it has come. It lies in the rank's arena; only its
// owner writes it, the others map it read-only. Directory: where in an arena the slots are.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dtensor/comm/algorithms/frame.h"

namespace dtensor::comm::shm {

// Larger Comms go over the transport.
inline constexpr int kMostRanks = 64;
// Data up to this size lies in the announcement itself.
inline constexpr int64_t kInlineBytes = 16 * 1024;
// Pieces of memory that others may read in place; a call with more of them goes through the lanes.
inline constexpr int kMostPlaces = 1024;
// Chunks of a lane. One is filled while others are emptied.
inline constexpr int64_t kDepth = 4;
inline constexpr int64_t kCommonChunkBytes = 256 * 1024;

// A lane is a ring of kDepth chunks, from one rank to one other; one more goes to all others. A
// rank's lanes on a Comm are at most 5 MiB.
inline int64_t lane_chunk_bytes(int ranks) {
  const int64_t share = (int64_t{1} << 20) / (ranks > 1 ? ranks - 1 : 1) / 64 * 64;
  return share < 16 * 1024 ? 16 * 1024 : share > 256 * 1024 ? 256 * 1024 : share;
}

enum class Source : uint8_t { kInline, kInPlace, kLane };

struct alignas(64) Counter {
  std::atomic<int64_t> value{0};
};

// What goes to one rank, and what is expected from it, as in a Header.
struct Pair {
  uint64_t sends;
  uint64_t expects;
  int64_t sent_bytes;
  int64_t expected_bytes;
  int64_t first;  // its first byte in `data`, or its first place
};

struct alignas(64) Announcement {
  std::atomic<int64_t> turn{0};  // sequence of the call + 1; written last
  uint64_t digest;               // of all that ranks must have alike
  int64_t reduced;               // the counter of that name when the call begins
  Source source;                 // of the call's data
  Source second;                 // of the second step of an all-reduce
  alignas(8) std::array<std::byte, kInlineBytes> data;  // of every dtype
  Header header;
  std::array<Pair, kMostRanks> pairs;
  int64_t second_place;
  std::array<int64_t, kMostPlaces> places;  // offsets in the arena
};

struct Slot {
  std::atomic<uint64_t> comm{0};  // id
  std::atomic<bool> closed{false};
  std::atomic<bool> failed{false};  // the owner has thrown: its memory may be written any time
  std::array<Announcement, 2> announcements;  // of the even and the odd calls
  Counter finished;       // turn of the last call in which the owner has read all that it reads
  Counter reduced;        // bytes of its part of all-reduces that it has reduced
  Counter published_all;  // chunks in the lane to all
  std::array<Counter, kMostRanks> published;     // chunks in the lane to each
  std::array<Counter, kMostRanks> consumed;      // chunks taken from each one's lane to the owner
  std::array<Counter, kMostRanks> consumed_all;  // chunks taken from each one's lane to all

  static int64_t size_bytes(int ranks) {
    return lanes_at() + (ranks - 1) * kDepth * lane_chunk_bytes(ranks) + kDepth * kCommonChunkBytes;
  }
  // Where chunk `k` of the lane from rank `from`, whose slot this is, to rank `to` lies.
  std::byte* lane(int ranks, int from, int to, int64_t k) const {
    const int64_t index = to < from ? to : to - 1;
    return bytes() + lanes_at() + (index * kDepth + k % kDepth) * lane_chunk_bytes(ranks);
  }
  std::byte* lane_to_all(int ranks, int64_t k) const {
    return bytes() + lanes_at() + (ranks - 1) * kDepth * lane_chunk_bytes(ranks) +
           k % kDepth * kCommonChunkBytes;
  }

 private:
  static int64_t lanes_at() { return (static_cast<int64_t>(sizeof(Slot)) + 4095) / 4096 * 4096; }
  std::byte* bytes() const {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(this));
  }
};

static_assert(std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// The first pages of an arena.
struct Directory {
  struct Entry {
    std::atomic<uint64_t> comm{0};
    std::atomic<int64_t> offset{0};
  };
  std::atomic<int64_t> used{0};  // entries so far
  std::array<Entry, 16 * 1024> entries;
};

}  // namespace dtensor::comm::shm
