// Transport: tagged point-to-point messages between the ranks of a world, with detection of
// failures. The collectives of dtensor/comm/algorithms are written once over it; its bodies are
// `local` (threads) and `gloo` (TCP).

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"

namespace dtensor::comm {

// A peer failed: thrown by Transport, turned into CommError by the front.
class TransportError : public Error {
 public:
  TransportError(int peer, bool timeout, const std::string& what)
      : Error(what), peer(peer), timeout(timeout) {}
  int peer;      // rank of the world, -1 where not known
  bool timeout;  // nothing came by the deadline
};

// A send or receive under way. Destroying one that is not complete cancels it: afterwards its
// memory is not touched any more.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual bool ready() = 0;
  // Throws TransportError. For a receive, returns the bytes that came.
  virtual void wait(Deadline deadline) = 0;
};

// Thread-safe: several Comms of one rank share it. Messages with equal (src, dst, tag) arrive in
// order; others are independent. Message sizes are known to both sides and must be equal.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<Transfer> send(int dst, uint64_t tag, const void* data,
                                         int64_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int src, uint64_t tag, void* data, int64_t bytes) = 0;
};

}  // namespace dtensor::comm
