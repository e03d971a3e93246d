// Backend: what stands behind a Comm. The front has checked the arguments, numbered the call and
// runs it on the Comm's lane; a backend moves the data.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/base/block_source.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/capabilities.h"
#include "dtensor/comm/memory.h"
#include "dtensor/comm/types.h"

namespace dtensor::comm {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // On the thread that makes a call, once its arguments are checked: may take down in `call.issued`
  // what its stream had before it.
  virtual void issue(Call&) {}
  // Blocks until the call is complete on this rank. Throws CommError; then nothing is written to
  // the buffers any more. Called by one thread at a time, in the order of sequence.
  virtual void run(const Call& call) = 0;
  // See Comm::group and Comm::abort. abort may be called from any thread and does not block.
  virtual std::shared_ptr<Backend> group(std::span<const int> ranks, std::string_view name) = 0;
  virtual void abort(std::string_view reason) noexcept = 0;
  // Called at most once, from any thread, when this Comm ends by an error, also while no call is
  // under way; says why. A backend that cannot tell does nothing.
  virtual void on_end(std::function<void(std::string_view why)>) {}
  // See Comm::allocate. Thread-safe.
  virtual Memory allocate(int64_t bytes) { return Memory::of_heap(bytes); }
  // See Comm::large_blocks.
  virtual std::weak_ptr<BlockSource> large_blocks() const { return {}; }
  virtual const Capabilities& capabilities() const = 0;
  virtual Counters counters() const = 0;
  // What ranks agreed on at rendezvous: the time of its start and a random part; and the restart
  // number.
  virtual const std::string& run_id() const = 0;
  virtual int64_t generation() const = 0;
};

}  // namespace dtensor::comm
