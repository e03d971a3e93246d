// Comm: collectives over a fixed set of ranks.
// All ranks make the same calls in the same order; the n-th call of every rank is one collective.
// Ranks that make different calls get CommError (Mismatch) naming both: never a hang, never wrong
// data. Counts are elements, int64, and may be 0 on any rank. A Comm that has raised CommError is
// dead for good: every later call throws the first error again; recovery is a new Comm.
//
// Calls return at once with a Work. Arguments are checked before anything is sent: ArgumentError.
// In place: `out` may be exactly `in` for all_reduce and reduce; for all_gather_v `in` may be this
// rank's segment of `out`; for reduce_scatter_v `out` may be this rank's segment of `in`. Any
// other overlap of memory is an ArgumentError.
// On the CPU 16-bit types sum in float32 and are rounded once, and the order of summation is fixed
// by (size, counts): the same bits on every run and on every rank. Of a device: capabilities().
// A Comm is used by one thread at a time; abort() may be called from any thread.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/block_source.h"
#include "dtensor/comm/capabilities.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/comm/memory.h"
#include "dtensor/comm/segments.h"
#include "dtensor/comm/types.h"
#include "dtensor/comm/work.h"

namespace dtensor::comm {

class Backend;  // dtensor/comm/backend.h
struct Call;
class Lane;
class Recorder;
struct Trace;  // dtensor/comm/trace.h

class Comm {
 public:
  // Made by a backend; users call comm::create or comm::from_environment.
  Comm(std::shared_ptr<Backend> backend, std::string name);
  ~Comm();  // bounded; does not throw
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;

  // out = reduction over all ranks; in and out have one count and dtype.
  [[nodiscard]] Work all_reduce(const ConstBuffer& in, const Buffer& out, ReduceOp op,
                                const CallOptions& options = {});
  // As all_reduce, on `root` only; `out` of the others is not touched and may be empty.
  [[nodiscard]] Work reduce(const ConstBuffer& in, const Buffer& out, int root, ReduceOp op,
                            const CallOptions& options = {});
  [[nodiscard]] Work broadcast(const Buffer& inout, int root, const CallOptions& options = {});

  // Puts every rank's `in` (segments.count(rank) elements) at segments.offset(rank) of `out`
  // (segments.total() elements) on all ranks.
  [[nodiscard]] Work all_gather_v(const ConstBuffer& in, const Buffer& out,
                                  const Segments& segments, const CallOptions& options = {});
  // The same for a list in one call: item i gathers in[i] to out[i] by segments[i]. Dtypes may
  // differ between items.
  [[nodiscard]] Work all_gather_v(std::span<const ConstBuffer> in, std::span<const Buffer> out,
                                  std::span<const Segments> segments,
                                  const CallOptions& options = {});

  // Reduces `in` (segments.total() elements) over all ranks and leaves segment rank() in `out`.
  [[nodiscard]] Work reduce_scatter_v(const ConstBuffer& in, const Buffer& out,
                                      const Segments& segments, ReduceOp op,
                                      const CallOptions& options = {});
  [[nodiscard]] Work reduce_scatter_v(std::span<const ConstBuffer> in, std::span<const Buffer> out,
                                      std::span<const Segments> segments, ReduceOp op,
                                      const CallOptions& options = {});

  // Sends segment r (by `to`) of `in` to rank r; segment r (by `from`) of `out` comes from r.
  [[nodiscard]] Work all_to_all_v(const ConstBuffer& in, const Segments& to, const Buffer& out,
                                  const Segments& from, const CallOptions& options = {});
  // all_gather_v with `out` on `root` only, and its opposite.
  [[nodiscard]] Work gather_v(const ConstBuffer& in, const Buffer& out, const Segments& segments,
                              int root, const CallOptions& options = {});
  [[nodiscard]] Work scatter_v(const ConstBuffer& in, const Buffer& out, const Segments& segments,
                               int root, const CallOptions& options = {});

  // Any set of sends and receives at once; legs of this rank to itself are copies. A rank with no
  // legs calls it too. Legs may be many and small.
  [[nodiscard]] Work exchange(std::span<const P2P> legs, const CallOptions& options = {});
  [[nodiscard]] Work barrier(const CallOptions& options = {});

  // The Comm of some ranks of this one, in the order given; called by those ranks only, and sends
  // no message. ArgumentError where this rank is not among them, or where the same (ranks, name)
  // was asked for before.
  std::unique_ptr<Comm> group(std::span<const int> ranks, std::string_view name);

  // Memory that this backend moves fastest: where ranks are processes of one host, they read it in
  // place. Any buffer may lie in it, on any rank, or not; results do not depend on it. Not
  // initialised; aligned to 64 bytes. It may outlive the Comm. From any thread. Error where memory
  // is out. A process forked from this one shares it: what one writes there, both see.
  Memory allocate(int64_t bytes);
  // The same memory for the allocator of a Context (dtensor/base/block_source.h); set_root gives it
  // to the one that is bound. Ends with the last Comm of the world; empty where no other process
  // reads it.
  std::weak_ptr<BlockSource> large_blocks() const;

  // Ends this Comm on every rank: pending and later calls throw CommError (Aborted) with this
  // reason. Returns at once; from any thread.
  void abort(std::string_view reason) noexcept;
  // A numbered call that every rank makes last: finds calls that some rank did not make.
  void shutdown(Deadline deadline = {});

  const Capabilities& capabilities() const;
  Counters counters() const;  // of this Comm and the groups made from it

  // The last 1,024 calls on this rank (dtensor/comm/trace.h), and what all calls took as text for
  // Prometheus. From any thread.
  Trace trace() const;
  std::string metrics() const;
  // Where the trace is written when this Comm, or one that is made from it later, ends by an error;
  // "": nowhere. comm::create takes it from the URL (trace=DIR) or DTENSOR_TRACE_DIR.
  void set_trace_directory(std::string directory);

  // Agreed at rendezvous, equal on all ranks: "<UTC time>-<random>", and the restart number.
  const std::string& run_id() const;
  int64_t generation() const;

  // Ends with this Comm. For who remembers it without owning it (dtensor/comm/root.h).
  std::weak_ptr<Comm*> handle() const { return handle_; }

 private:
  Comm(std::shared_ptr<Backend> backend, std::string name, Trace about);
  Work submit(Call call);

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<Lane> lane_;
  std::string name_;
  std::shared_ptr<Comm*> handle_ = std::make_shared<Comm*>(this);
  int64_t next_ = 0;      // number of the next call
  uint64_t history_ = 0;  // rolling hash of the calls so far
};

}  // namespace dtensor::comm
