#include "dtensor/comm/algorithms/collectives.h"

#include "dtensor/comm/algorithms/parcels.h"
#include "dtensor/comm/algorithms/reduce_scatter.h"

namespace dtensor::comm {
namespace {

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
