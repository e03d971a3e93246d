// The operations of a Comm, each with values that are known without it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/comm/comm.h"

namespace dtensor::testing {

// What one rank gives to an operation and gets from it. Ranks have different counts.
class OperationRun {
 public:
  // `operation` counts from 0; a rank's share is about `count` elements.
  OperationRun(comm::Comm& comm, int operation, int64_t count);

  // Fills the buffers for this round and issues the call.
  comm::Work issue(int64_t round);
  // After it: is every element what it should be? Empty, or what is wrong.
  std::string check(int64_t round) const;

  // For after a failure: is the memory still what was put into it?
  void poison();
  bool untouched() const;

 private:
  int64_t share(int rank) const { return rank % 3 == 1 ? count_ / 2 : count_ + rank; }
  comm::Segments shares() const;

  comm::Comm& comm_;
  const int operation_;
  const int64_t count_;
  std::vector<float> in_;
  std::vector<float> out_;
};

}  // namespace dtensor::testing
