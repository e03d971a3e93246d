// Transport: tagged point-to-point messages between the ranks of a world. The collectives of
// dtensor/comm/algorithms are written once over it; its bodies are `local` (threads), `gloo` and
// `ucx` (processes). docs/comm.md says how to write one.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"

namespace dtensor::comm {

// A message could not be moved: thrown by Transport, turned into CommError by the algorithms.
class TransportError : public Error {
 public:
  enum class Kind : uint8_t {
    kPeer,         // the connection to `peer` failed
    kTimeout,      // nothing came by the deadline
    kInterrupted,  // Transfer::interrupt
  };
  TransportError(Kind kind, int peer, const std::string& what)
      : Error(what), kind(kind), peer(peer) {}
  Kind kind;
  int peer;  // rank of the world, -1 where not known
};

// A send or receive under way. Destroying one that is not complete cancels it; afterwards its
// memory is not touched any more. Used by one thread, interrupt() by any.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Has it completed or failed, so that wait() would not block? Cheap.
  virtual bool ready() = 0;
  // Returns when complete: a send's memory may be reused, a receive's bytes are there. Throws
  // TransportError. The deadline is a backstop: whoever waits is interrupted before it by the
  // thread that watches the operation, so that a body may end the whole connection when it passes.
  virtual void wait(Deadline deadline) = 0;
  // Makes a wait that is under way, or else the next one, throw TransportError (kInterrupted),
  // unless the transfer completed first. Other transfers are not disturbed. Does not block.
  virtual void interrupt() noexcept = 0;
};

// Thread-safe: several Comms of one rank share it. Messages with equal (src, dst, tag) arrive in
// the order in which they were sent; others are independent of each other. Sends and receives may
// be posted in any order and number. Both sides name the same number of bytes, at least 1; a
// receive that meets a message of another size fails with kPeer. Sending to oneself does not occur.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The largest message, equal on all ranks and at least kLeastMessageBytes. Longer ones are split
  // by the algorithms.
  virtual int64_t max_message_bytes() const = 0;
  // Start a transfer. They throw TransportError (kPeer) where the connection is known to have
  // failed; a failure found later is thrown by the transfer's wait.
  virtual std::unique_ptr<Transfer> send(int dst, uint64_t tag, const void* data,
                                         int64_t bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int src, uint64_t tag, void* data, int64_t bytes) = 0;
};

inline constexpr int64_t kLeastMessageBytes = 512;

}  // namespace dtensor::comm
