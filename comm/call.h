// Call: one call of a Comm, as its backend gets it. CallKey: what all ranks must have alike in it;
// it is compared over the wire, hashed into the history of a Comm, and shown in errors.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/device.h"
#include "dtensor/comm/segments.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

struct CallKey {
  uint8_t op = 0;
  uint8_t reduce = 0;  // 0 where the op does not reduce
  uint8_t dtype = 0;   // of the first buffer, 0 where there is none
  uint8_t items = 0;   // of a list, at most 255 shown
  int32_t root = 0;
  int64_t count = 0;    // elements, for people; of this rank where ranks may differ
  uint64_t counts = 0;  // hash of all counts and dtypes that must agree
  uint64_t label = 0;   // hash

  // All that must agree; count is in it by way of counts.
  uint64_t hash() const;
};

// One call, with everything that ranks compare. Owns copies of what the user passed.
struct Call {
  OpKind op = OpKind::kBarrier;
  int64_t sequence = 0;
  int root = 0;
  ReduceOp reduce = ReduceOp::kSum;
  std::vector<ConstBuffer> in;  // one per item of a list
  std::vector<Buffer> out;
  std::vector<Segments> segments;  // one per item; for all_to_all_v: {to, from}
  std::vector<P2P> legs;           // of an exchange
  std::string label;
  Deadline deadline;             // resolved
  Stream stream;                 // of the device where the buffers are
  std::shared_ptr<void> issued;  // what a backend took down when the call was made
  uint64_t history = 0;          // rolling hash of the calls before this one
  CallKey key;                   // of the fields above
};

CallKey key_of(const Call& call);

// "broadcast f32[100] with root 1 \"step\"".
std::string describe(const CallKey& key, std::string_view label);

}  // namespace dtensor::comm
