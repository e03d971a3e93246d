// Plan: what one rank does in a call between ranks of one host: what it offers to the others, and
// what it copies or reduces from theirs. Made anew for every call in the same memory.

#pragma once

#include <cstdint>

#include "dtensor/comm/algorithms/parcels.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/shm/copy.h"

namespace dtensor::comm::shm {

struct Plan {
  explicit Plan(int size) : parcels(size), second(size) {}

  enum class Offer : uint8_t { kToAll, kToEach };
  Offer offer = Offer::kToAll;
  Parcel to_all;    // kToAll: what every other rank may read
  Parcels parcels;  // kToEach: what goes to each; both: what is copied from each, this rank too

  // A reduction, of `out` pieces: operand r is what rank r offers to this one (or to all), and this
  // rank's own.
  bool reduces = false;
  Parcel own;
  Parcel out;

  // After that, of a large all-reduce: out[0] goes to all, and second.receive is copied from each.
  bool gathers = false;
  Parcels second;

  // Are counts compared between each two ranks, since the others do not know them?
  bool compares_pairs = false;
  int64_t offered_bytes = 0;  // to all ranks, aligned; of a reduction the same on every rank
  Copy copy = Copy::kCached;  // into this rank's buffers
  int64_t payload_bytes = 0;  // what the operation has to send from this rank
};

// `one_step`: an all-reduce that sends everything to everybody.
void make_plan(const Call& call, int rank, int size, bool one_step, Plan& plan);

}  // namespace dtensor::comm::shm
