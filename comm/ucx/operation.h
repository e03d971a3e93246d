// Operation: one message that UCX was given. UCX cannot withdraw one that it has begun to move, so
// it never sees the caller's memory: it asks for bytes, or brings them, piece by piece, and an
// operation that was abandoned meanwhile touches no memory any more. A byte at the end of every
// message says whether it is whole; a sender that abandoned it says no.

#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace dtensor::comm::ucx {

class Operations;

// Guarded by the worker's mutex, but for `done`: after it the outcome may be read.
struct Operation {
  Operations* owner = nullptr;
  std::byte* memory = nullptr;  // a sender's is only read
  int64_t bytes = 0;
  bool sends = false;
  bool abandoned = false;   // nobody waits for it: `memory` is gone
  void* request = nullptr;  // UCX's, while it is pending

  std::atomic<bool> done{false};
  ucs_status_t status = UCS_OK;
  int64_t arrived_bytes = 0;  // of a receive, the data
  std::byte ending{0};        // of a receive
};

inline constexpr std::byte kWhole{1};
inline constexpr std::byte kWithdrawn{2};

// The functions by which UCX gets at the Operation that it is given as buffer (a "generic
// datatype", of which a message has one).
ucp_generic_dt_ops_t operation_functions();

// All Operations of one worker, for use again. Guarded by the worker's mutex.
class Operations {
 public:
  Operation* take(void* memory, int64_t bytes, bool sends);
  // UCX is done with it.
  void complete(Operation& op, ucs_status_t status);
  // Its Transfer is done with it. Where UCX is not, that remains to come.
  void release(Operation& op);
  int64_t sends_pending() const { return sends_pending_; }

 private:
  std::vector<std::unique_ptr<Operation>> all_;
  std::vector<Operation*> free_;
  int64_t sends_pending_ = 0;
};

}  // namespace dtensor::comm::ucx
