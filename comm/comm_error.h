// CommError: a collective failed. The Comm that raised it is dead for good; every rank in the
// operation gets one that names the same culprit.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "dtensor/base/error.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

enum class CommErrorKind : uint8_t { kPeerLost, kTimeout, kMismatch, kAborted };

std::string_view name_of(CommErrorKind kind);  // "PeerLost"

class CommError : public Error {
 public:
  struct Fields {
    CommErrorKind kind = CommErrorKind::kAborted;
    int culprit = -1;           // rank of the Comm, -1 where nobody in particular
    bool proved = false;        // false: suspected
    int culprit_in_world = -1;  // the same rank's number in the world that the Comm is part of
    OpInfo op = {};             // the operation that this rank was in
    std::chrono::nanoseconds elapsed{0};
    std::string comm = {};    // the Comm's name
    int size = 0;             // its number of ranks
    std::string detail = {};  // "connection reset"; for a mismatch both calls with their ranks
  };
  // The message is composed from the fields.
  explicit CommError(Fields fields);
  const Fields& fields() const { return fields_; }

 private:
  Fields fields_;
};

}  // namespace dtensor::comm
