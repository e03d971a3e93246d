#include "dtensor/comm/algorithms/reduce_scatter.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "dtensor/comm/algorithms/parcels.h"
#include "dtensor/comm/algorithms/reduction.h"

namespace dtensor::comm {
namespace {

// A reduce-scatter that is not one step goes through a few chunks of memory that stay in the cache.
constexpr int64_t kChunkBytes = 128 * 1024;
constexpr size_t kSlots = 2;  // chunks under way: one arrives while one is reduced

// Memory for what comes from one rank.
class Staging {
 public:
  Piece add(int64_t count, DType dtype) {
    auto& block = blocks_.emplace_back(
        std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count * size_of(dtype))));
    return {block.get(), count, dtype};
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

// out = reduction, in the order of ranks, of item `item` of what came from each, and of `own`.
void reduce_arrived(const Session& s, Parcels& parcels, size_t item, const Piece& own,
                    const Piece& out, ReduceOp op) {
  std::vector<const void*> operands;
  for (int r = 0; r < s.size(); ++r) {
    operands.push_back(r == s.rank() ? own.data : parcels.from(r)[item].data);
  }
  reduce_into(out.data, operands, out.count, out.dtype, op);
}

void reduce_scatter_one_step(Session& s, const Call& call) {
  Parcels p(s.size());
  Staging staging;
  for (size_t i = 0; i < call.in.size(); ++i) {
    for (int r = 0; r < s.size(); ++r) {
      if (r == s.rank()) continue;
      p.to(r).push_back(part(call.in[i], call.segments[i], r));
      p.from(r).push_back(staging.add(call.segments[i].count(s.rank()), call.in[i].dtype));
    }
  }
  s.begin(p.send, p.receive);
  for (size_t i = 0; i < call.in.size(); ++i) {
    reduce_arrived(s, p, i, part(call.in[i], call.segments[i], s.rank()), piece(call.out[i]),
                   call.reduce);
  }
}

// A part of an item of a list.
struct Chunk {
  size_t item;
  int64_t offset;  // from the beginning of the rank's segment
  int64_t count;
};

// The chunks of a rank's segments: the same list on every rank.
std::vector<Chunk> chunks_of(const Call& call, int rank, int64_t chunk_bytes) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const int64_t count = call.segments[i].count(rank);
    const int64_t step = chunk_bytes / size_of(call.in[i].dtype);
    for (int64_t at = 0; at < count; at += step) {
      chunks.push_back({i, at, std::min(step, count - at)});
    }
  }
  return chunks;
}

Piece source(const Call& call, const Chunk& chunk, int rank) {
  return part(call.in[chunk.item], call.segments[chunk.item].offset(rank) + chunk.offset,
              chunk.count);
}

// Receives the chunks of this rank's segments from all others into a few slots.
class ChunkPipeline {
 public:
  ChunkPipeline(Session& session, const Call& call, int64_t chunk_bytes)
      : s_(session), call_(call), chunks_(chunks_of(call, session.rank(), chunk_bytes)) {
    if (chunks_.empty()) return;
    for (Slot& slot : slots_) {
      slot.memory =
          std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(chunk_bytes * s_.size()));
      slot.transfers.resize(static_cast<size_t>(s_.size()));
    }
    chunk_bytes_ = chunk_bytes;
  }

  void run() {
    for (size_t k = 0; k < std::min(kSlots, chunks_.size()); ++k) start(k);
    for (size_t k = 0; k < chunks_.size(); ++k) {
      reduce(k);
      if (k + kSlots < chunks_.size()) start(k + kSlots);
    }
  }

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> memory;               // a chunk per rank
    std::vector<std::unique_ptr<Transfer>> transfers;  // by rank; go before the memory
  };

  std::byte* place(Slot& slot, int rank) const { return slot.memory.get() + rank * chunk_bytes_; }

  void start(size_t k) {
    Slot& slot = slots_[k % kSlots];
    const Chunk& chunk = chunks_[k];
    for (int step = 1; step < s_.size(); ++step) {
      const int from = (s_.rank() - step + s_.size()) % s_.size();
      slot.transfers[static_cast<size_t>(from)] =
          s_.start_receive(from, {place(slot, from), chunk.count, call_.in[chunk.item].dtype});
    }
  }

  void reduce(size_t k) {
    Slot& slot = slots_[k % kSlots];
    const Chunk& chunk = chunks_[k];
    std::vector<const void*> operands;
    for (int r = 0; r < s_.size(); ++r) {
      if (r == s_.rank()) {
        operands.push_back(source(call_, chunk, r).data);
        continue;
      }
      s_.wait(*slot.transfers[static_cast<size_t>(r)], r);
      operands.push_back(place(slot, r));
    }
    const Piece out = part(call_.out[chunk.item], chunk.offset, chunk.count);
    reduce_into(out.data, operands, out.count, out.dtype, call_.reduce);
  }

  Session& s_;
  const Call& call_;
  const std::vector<Chunk> chunks_;
  int64_t chunk_bytes_ = 0;
  std::array<Slot, kSlots> slots_;
};

void reduce_scatter_in_chunks(Session& s, const Call& call) {
  const Parcels none(s.size());
  s.begin(none.send, none.receive);
  const int64_t chunk_bytes = std::min(kChunkBytes, s.max_message_bytes()) / 8 * 8;
  for (int step = 1; step < s.size(); ++step) {
    const int to = (s.rank() + step) % s.size();
    for (const Chunk& chunk : chunks_of(call, to, chunk_bytes)) {
      s.start_send(to, source(call, chunk, to));
    }
  }
  ChunkPipeline(s, call, chunk_bytes).run();
  s.finish();
}

int64_t bytes_of(const Call& call) {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    bytes += call.segments[i].total() * size_of(call.in[i].dtype);
  }
  return bytes;
}

void all_reduce_one_step(Session& s, const Call& call) {
  Parcels p(s.size());
  Staging staging;
  const Piece mine = part(call.in[0], Segments::even(call.in[0].count, s.size()), s.rank());
  s.set_payload(call.in[0].size_bytes() + (s.size() - 2) * mine.bytes());
  for (int r = 0; r < s.size(); ++r) {
    if (r == s.rank()) continue;
    p.to(r).push_back(piece(call.in[0]));
    p.from(r).push_back(staging.add(call.in[0].count, call.in[0].dtype));
  }
  s.begin(p.send, p.receive);
  reduce_arrived(s, p, 0, piece(call.in[0]), piece(call.out[0]), call.reduce);
}

}  // namespace

void reduce_scatter(Session& s, const Call& call) {
  if (bytes_of(call) <= s.choice().reduce_scatter_one_step_bytes) {
    reduce_scatter_one_step(s, call);
  } else {
    reduce_scatter_in_chunks(s, call);
  }
}

void all_reduce(Session& s, const Call& call) {
  if (call.in[0].size_bytes() <= s.choice().all_reduce_one_step_bytes) {
    return all_reduce_one_step(s, call);
  }
  const Segments segments = Segments::even(call.in[0].count, s.size());
  const Piece mine = part(call.out[0], segments, s.rank());
  Call scatter = call;
  scatter.segments = {segments};
  scatter.out = {Buffer{mine.data, mine.count, mine.dtype}};
  reduce_scatter(s, scatter);
  Parcels p(s.size());
  for (int r = 0; r < s.size(); ++r) {
    p.to(r).push_back(mine);
    p.from(r).push_back(part(call.out[0], segments, r));
  }
  s.move(p.send, p.receive);
}

// A reduce-scatter whose one segment is the root's.
void reduce(Session& s, const Call& call) {
  std::vector<int64_t> counts(static_cast<size_t>(s.size()), 0);
  counts[static_cast<size_t>(call.root)] = call.in[0].count;
  Call scatter = call;
  scatter.segments = {Segments(counts)};
  if (s.rank() != call.root) scatter.out = {Buffer{nullptr, 0, call.in[0].dtype}};
  reduce_scatter(s, scatter);
}

}  // namespace dtensor::comm
