#include "dtensor/comm/shm/plan.h"

#include "dtensor/comm/shm/cursor.h"

namespace dtensor::comm::shm {
namespace {

void all_gather(const Call& call, int size, Plan& plan) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    plan.to_all.push_back(piece(call.in[i]));
    for (int r = 0; r < size; ++r) {
      plan.parcels.from(r).push_back(part(call.out[i], call.segments[i], r));
    }
  }
}

void all_to_all(const Call& call, int size, Plan& plan) {
  for (int r = 0; r < size; ++r) {
    plan.parcels.to(r).push_back(part(call.in[0], call.segments[0], r));
    plan.parcels.from(r).push_back(part(call.out[0], call.segments[1], r));
  }
  plan.compares_pairs = true;
}

void exchange(const Call& call, Plan& plan) {
  for (const P2P& leg : call.legs) {
    auto& parcel = leg.direction == P2P::Direction::kSend ? plan.parcels.to(leg.peer)
                                                          : plan.parcels.from(leg.peer);
    parcel.push_back(piece(leg.buffer));
  }
  plan.compares_pairs = true;
}

void reduce_scatter(const Call& call, int rank, int size, Plan& plan) {
  plan.reduces = true;
  for (size_t i = 0; i < call.in.size(); ++i) {
    for (int r = 0; r < size; ++r) {
      plan.parcels.to(r).push_back(part(call.in[i], call.segments[i], r));
    }
    plan.own.push_back(part(call.in[i], call.segments[i], rank));
    plan.out.push_back(piece(call.out[i]));
  }
}

void all_reduce(const Call& call, int rank, int size, bool one_step, Plan& plan) {
  plan.reduces = true;
  const Segments segments = Segments::even(call.in[0].count, size);
  const Piece mine = part(call.out[0], segments, rank);
  plan.payload_bytes = call.in[0].size_bytes() + (size - 2) * mine.bytes();
  if (one_step) {
    plan.offer = Plan::Offer::kToAll;
    plan.to_all = {piece(call.in[0])};
    plan.own = {piece(call.in[0])};
    plan.out = {piece(call.out[0])};
    return;
  }
  for (int r = 0; r < size; ++r) {
    plan.parcels.to(r).push_back(part(call.in[0], segments, r));
    plan.second.from(r).push_back(part(call.out[0], segments, r));
  }
  plan.own = {part(call.in[0], segments, rank)};
  plan.out = {mine};
  plan.gathers = true;
}

// Where the ranks of a host copy more than this together, it does not stay in their caches.
constexpr int64_t kStreamedBytes = int64_t{64} << 20;

int64_t aligned_bytes(const Parcel& parcel) {
  int64_t bytes = 0;
  for (const Piece& p : parcel) bytes += aligned(p.bytes());
  return bytes;
}

void sum_up(int rank, int size, bool all_reduces, Plan& plan) {
  int64_t copied = 0;
  for (const Parcel& p : plan.parcels.receive) copied += bytes_of(p);
  for (const Parcel& p : plan.second.receive) copied += bytes_of(p);
  plan.copy = copied >= kStreamedBytes / size ? Copy::kStreamed : Copy::kCached;
  int64_t payload = 0;
  if (plan.offer == Plan::Offer::kToAll) {
    plan.offered_bytes = aligned_bytes(plan.to_all);
    payload = (size - 1) * bytes_of(plan.to_all);
  } else {
    for (int r = 0; r < size; ++r) {
      plan.offered_bytes += aligned_bytes(plan.parcels.to(r));
      if (r != rank) payload += bytes_of(plan.parcels.to(r));
    }
  }
  if (!all_reduces) plan.payload_bytes = payload;
}

}  // namespace

void make_plan(const Call& call, int rank, int size, bool one_step, Plan& plan) {
  plan.to_all.clear();
  plan.parcels.clear();
  plan.second.clear();
  plan.own.clear();
  plan.out.clear();
  plan.reduces = plan.gathers = plan.compares_pairs = false;
  plan.offered_bytes = 0;
  plan.offer = Plan::Offer::kToEach;
  switch (call.op) {
    case OpKind::kAllReduce:
      all_reduce(call, rank, size, one_step, plan);
      break;
    case OpKind::kReduce:
      plan.reduces = true;
      plan.parcels.to(call.root) = {piece(call.in[0])};
      if (rank == call.root) {
        plan.own = {piece(call.in[0])};
        plan.out = {piece(call.out[0])};
      }
      break;
    case OpKind::kBroadcast:
      plan.offer = Plan::Offer::kToAll;
      if (rank == call.root) {
        plan.to_all = {piece(call.out[0])};
      } else {
        plan.parcels.from(call.root) = {piece(call.out[0])};
      }
      break;
    case OpKind::kAllGather:
      plan.offer = Plan::Offer::kToAll;
      all_gather(call, size, plan);
      break;
    case OpKind::kReduceScatter:
      reduce_scatter(call, rank, size, plan);
      break;
    case OpKind::kAllToAll:
      all_to_all(call, size, plan);
      break;
    case OpKind::kGather:
      plan.parcels.to(call.root) = {piece(call.in[0])};
      for (int r = 0; rank == call.root && r < size; ++r) {
        plan.parcels.from(r).push_back(part(call.out[0], call.segments[0], r));
      }
      break;
    case OpKind::kScatter:
      plan.parcels.from(call.root) = {piece(call.out[0])};
      for (int r = 0; rank == call.root && r < size; ++r) {
        plan.parcels.to(r).push_back(part(call.in[0], call.segments[0], r));
      }
      break;
    case OpKind::kExchange:
      exchange(call, plan);
      break;
    case OpKind::kBarrier:
    case OpKind::kShutdown:
      plan.offer = Plan::Offer::kToAll;
      break;
  }
  sum_up(rank, size, call.op == OpKind::kAllReduce, plan);
}

}  // namespace dtensor::comm::shm
