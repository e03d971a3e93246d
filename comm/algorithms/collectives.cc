#include "dtensor/comm/algorithms/collectives.h"

#include "dtensor/comm/algorithms/reduction.h"

namespace dtensor::comm {
namespace {

// An all-reduce up to this size sends everything to everybody, in one step; a larger one is a
// reduce-scatter and an all-gather.
constexpr int64_t kOneStepBytes = 16 * 1024;

Piece piece(const ConstBuffer& b) { return {const_cast<void*>(b.data), b.count, b.dtype}; }

Piece part(const ConstBuffer& b, int64_t offset, int64_t count) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(b.data));
  return {data == nullptr ? nullptr : data + offset * size_of(b.dtype), count, b.dtype};
}

Piece part(const ConstBuffer& b, const Segments& s, int rank) {
  return part(b, s.offset(rank), s.count(rank));
}

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

// One parcel per rank.
struct Parcels {
  explicit Parcels(int size)
      : send(static_cast<size_t>(size)), receive(static_cast<size_t>(size)) {}
  Parcel& to(int rank) { return send[static_cast<size_t>(rank)]; }
  Parcel& from(int rank) { return receive[static_cast<size_t>(rank)]; }

  std::vector<Parcel> send;
  std::vector<Parcel> receive;
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

void all_gather(Session& s, const Call& call) {
  Parcels p(s.size());
  for (size_t i = 0; i < call.in.size(); ++i) {
    for (int r = 0; r < s.size(); ++r) {
      p.to(r).push_back(piece(call.in[i]));
      p.from(r).push_back(part(call.out[i], call.segments[i], r));
    }
  }
  s.begin(p.send, p.receive);
}

// Every rank gets its own segment from all others, and reduces it.
void reduce_scatter(Session& s, const Call& call) {
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

void all_reduce(Session& s, const Call& call) {
  if (s.size() <= 2 || call.in[0].size_bytes() <= kOneStepBytes)
    return all_reduce_one_step(s, call);
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

void reduce(Session& s, const Call& call) {
  Parcels p(s.size());
  Staging staging;
  if (s.rank() != call.root) p.to(call.root).push_back(piece(call.in[0]));
  for (int r = 0; r < s.size(); ++r) {
    if (s.rank() != call.root || r == s.rank()) continue;
    p.from(r).push_back(staging.add(call.in[0].count, call.in[0].dtype));
  }
  s.begin(p.send, p.receive);
  if (s.rank() != call.root) return;
  reduce_arrived(s, p, 0, piece(call.in[0]), piece(call.out[0]), call.reduce);
}

void broadcast(Session& s, const Call& call) {
  Parcels p(s.size());
  const Piece whole = piece(call.out[0]);
  if (s.rank() == call.root) {
    for (int r = 0; r < s.size(); ++r) {
      if (r != call.root) p.to(r).push_back(whole);
    }
  } else {
    p.from(call.root).push_back(whole);
  }
  s.begin(p.send, p.receive);
}

void all_to_all(Session& s, const Call& call) {
  Parcels p(s.size());
  for (int r = 0; r < s.size(); ++r) {
    p.to(r).push_back(part(call.in[0], call.segments[0], r));
    p.from(r).push_back(part(call.out[0], call.segments[1], r));
  }
  s.begin(p.send, p.receive);
}

void gather(Session& s, const Call& call) {
  Parcels p(s.size());
  p.to(call.root).push_back(piece(call.in[0]));
  for (int r = 0; s.rank() == call.root && r < s.size(); ++r) {
    p.from(r).push_back(part(call.out[0], call.segments[0], r));
  }
  s.begin(p.send, p.receive);
}

void scatter(Session& s, const Call& call) {
  Parcels p(s.size());
  p.from(call.root).push_back(piece(call.out[0]));
  for (int r = 0; s.rank() == call.root && r < s.size(); ++r) {
    p.to(r).push_back(part(call.in[0], call.segments[0], r));
  }
  s.begin(p.send, p.receive);
}

void exchange(Session& s, const Call& call) {
  Parcels p(s.size());
  for (const P2P& leg : call.legs) {
    auto& parcel = leg.direction == P2P::Direction::kSend ? p.to(leg.peer) : p.from(leg.peer);
    parcel.push_back(piece(leg.buffer));
  }
  s.begin(p.send, p.receive);
}

}  // namespace

void run_collective(Session& session, const Call& call) {
  switch (call.op) {
    case OpKind::kAllReduce:
      return all_reduce(session, call);
    case OpKind::kReduce:
      return reduce(session, call);
    case OpKind::kBroadcast:
      return broadcast(session, call);
    case OpKind::kAllGather:
      return all_gather(session, call);
    case OpKind::kReduceScatter:
      return reduce_scatter(session, call);
    case OpKind::kAllToAll:
      return all_to_all(session, call);
    case OpKind::kGather:
      return gather(session, call);
    case OpKind::kScatter:
      return scatter(session, call);
    case OpKind::kExchange:
      return exchange(session, call);
    case OpKind::kBarrier:
    case OpKind::kShutdown: {
      const Parcels none(session.size());
      return session.begin(none.send, none.receive);
    }
  }
}

}  // namespace dtensor::comm
