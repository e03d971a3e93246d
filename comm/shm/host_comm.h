// HostComm: runs the calls of a Comm whose ranks are processes of one host, in memory that they
// share.
//
// In every call each rank announces what it is in, in its Slot, and reads what all others announce:
// ranks that make different calls find out before any data is taken. Data comes along with the
// announcement where it is small (Source::kInline), is read where it lies where that is memory from
// Comm::allocate (kInPlace), or goes through bounded lanes (kLane). Nobody writes into another
// rank's memory: each rank copies or reduces into its own buffers, and says how far it is.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "dtensor/comm/algorithms/session.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/shm/cursor.h"
#include "dtensor/comm/shm/neighbours.h"
#include "dtensor/comm/shm/plan.h"
#include "dtensor/comm/shm/slot.h"

namespace dtensor::comm::shm {

class HostComm {
 public:
  // `members`: ranks of the world in the order of the Comm, all neighbours; 2 to kMostRanks.
  HostComm(std::shared_ptr<Neighbours> neighbours, uint64_t comm, int rank,
           std::vector<int> members);
  ~HostComm();
  HostComm(const HostComm&) = delete;
  HostComm& operator=(const HostComm&) = delete;

  // Runs one call to its end on this rank. Throws TransportError and CallsDiffer; it is not used
  // any more then. The same bits as run_collective.
  void run(Link& link, const Call& call);

 private:
  struct Peer {
    const Slot* slot = nullptr;  // nullptr until it is found
    Neighbours::Found found;     // the same, and where
    const Announcement* said = nullptr;
    int64_t published = 0;  // chunks in the lane to it
    int64_t consumed = 0;   // chunks taken from its lane to this rank
    int64_t consumed_all = 0;
    // Of the present call.
    Cursor offers;
    Cursor takes;
    Cursor takes_second;
  };

  void announce(const Call& call);
  Source offer(Announcement& a);
  bool place_all(Announcement& a);
  void check(const Call& call, int r) const;
  void check_held(int r) const;
  bool has_announced(int r);
  void prepare();
  bool advance();
  bool done() const;
  int lagging() const;
  void finish();

  bool pump(int r);
  bool pump_all(Cursor& cursor, const Parcel& parcel, int64_t available);
  bool has_next(int r) const;
  bool take(int r);
  bool take_second(int r);
  bool reduce_next();
  // Where the next chunk that rank r offers to this one lies: fragment `piece`, `offset` of it.
  const std::byte* source_of(int r, size_t piece, int64_t offset, int64_t bytes, int64_t at) const;
  void consume(int r);

  // Waits until f() is true; `behind()` is the rank that this one waits for.
  template <class F, class G>
  void until(F&& f, G&& behind);

  const std::shared_ptr<Neighbours> neighbours_;
  const uint64_t comm_;
  const int rank_;
  const int size_;
  const std::vector<int> members_;
  const int64_t chunk_bytes_;
  const int64_t spins_;
  Slot& mine_;
  std::vector<Peer> peers_;
  int64_t published_all_ = 0;
  int64_t reduced_ = 0;

  // The present call.
  Link* link_ = nullptr;
  int64_t turn_ = 0;
  uint64_t digest_ = 0;
  Announcement* said_ = nullptr;
  ReduceOp reduce_op_ = ReduceOp::kSum;
  Plan plan_;
  bool offers_in_place_ = false;
  bool read_in_place_ = false;
  Cursor offers_all_;
  Cursor offers_second_;
  Cursor reduces_;
  std::vector<const void*> operands_;
};

}  // namespace dtensor::comm::shm
