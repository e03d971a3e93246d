#include "dtensor/comm/shm/host_comm.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "dtensor/base/patience.h"
#include "dtensor/comm/algorithms/frame.h"
#include "dtensor/comm/hash.h"
#include "dtensor/comm/shm/copy.h"

namespace dtensor::comm::shm {
namespace {

// How often a rank looks before the Watch is told what it waits for.
constexpr int kUnwatched = 4000;

uint64_t digest_of(const Call& call, uint64_t comm) {
  uint64_t h = internal::mix(comm, static_cast<uint64_t>(call.sequence));
  h = internal::mix(h, call.history);
  return internal::mix(h, call.key.hash());
}

// Some microseconds where every rank has a core.
int64_t spins_for(int ranks) {
  return static_cast<int>(std::thread::hardware_concurrency()) >= ranks ? 300 : 0;
}

// A wait in shared memory as the Watch sees it.
template <class F>
class Stuck : public Transfer {
 public:
  Stuck(F& f, Patience& patience) : f_(f), patience_(patience) {}
  bool ready() override { return done_ = done_ || f_(); }
  void wait(Deadline deadline) override {
    while (!ready()) {
      if (interrupted_.load(std::memory_order_acquire)) {
        throw TransportError(TransportError::Kind::kInterrupted, -1, "interrupted");
      }
      if (patience_.time_to_look() && deadline.expired()) {
        throw TransportError(TransportError::Kind::kTimeout, -1, "nothing came");
      }
      patience_.pause();
    }
  }
  void interrupt() noexcept override { interrupted_.store(true, std::memory_order_release); }

 private:
  F& f_;
  Patience& patience_;
  bool done_ = false;
  std::atomic<bool> interrupted_{false};
};

void copy_own(const Parcel& from, const Parcel& to, Copy kind) {
  internal_check(from.size() == to.size(), "a rank's own parcels do not pair up");
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].count == 0 || from[i].data == to[i].data) continue;
    copy_bytes(to[i].data, from[i].data, from[i].bytes(), kind);
  }
}

}  // namespace

HostComm::HostComm(std::shared_ptr<Neighbours> neighbours, uint64_t comm, int rank,
                   std::vector<int> members)
    : neighbours_(std::move(neighbours)),
      comm_(comm),
      rank_(rank),
      size_(static_cast<int>(members.size())),
      members_(std::move(members)),
      chunk_bytes_(lane_chunk_bytes(size_)),
      spins_(spins_for(size_)),
      mine_(neighbours_->open(comm, members_)),
      peers_(static_cast<size_t>(size_)),
      plan_(size_) {}

HostComm::~HostComm() { neighbours_->close(comm_); }

void HostComm::run(Link& link, const Call& call) {
  link_ = &link;
  try {
    const bool one_step = call.op == OpKind::kAllReduce &&
                          call.in[0].size_bytes() <= link.choice.all_reduce_one_step_bytes;
    make_plan(call, rank_, size_, one_step, plan_);
    announce(call);
    link.count(plan_.payload_bytes,
               plan_.payload_bytes + (size_ - 1) * static_cast<int64_t>(sizeof(Header)));
    if (!plan_.reduces) {
      const auto me = static_cast<size_t>(rank_);
      const bool to_all = plan_.offer == Plan::Offer::kToAll;
      if (!to_all || !plan_.parcels.receive[me].empty()) {
        copy_own(to_all ? plan_.to_all : plan_.parcels.send[me], plan_.parcels.receive[me],
                 plan_.copy);
      }
    }
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      until([&] { return has_announced(r); }, [&] { return r; });
      check(call, r);
    }
    prepare();
    while (!done()) {
      until([&] { return advance(); }, [&] { return lagging(); });
    }
    finish();
  } catch (...) {
    mine_.failed.store(true, std::memory_order_relaxed);
    // Before anything that the caller writes to its memory from now on: see finish().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    throw;
  }
}

// Two announcements take turns: a rank that makes one has seen that all others made the one before,
// so that nobody reads the older one any more.
void HostComm::announce(const Call& call) {
  turn_ = call.sequence + 1;
  digest_ = digest_of(call, comm_);
  reduce_op_ = call.reduce;
  said_ = &mine_.announcements[static_cast<size_t>(call.sequence % 2)];
  Announcement& a = *said_;
  a.digest = digest_;
  a.reduced = reduced_;
  a.header = make_header(call, comm_, rank_);
  offers_in_place_ = read_in_place_ = false;
  offers_all_ = offers_second_ = Cursor();
  for (Peer& p : peers_) p.offers = Cursor();
  if (plan_.compares_pairs) {
    for (int r = 0; r < size_; ++r) {
      Pair& pair = a.pairs[static_cast<size_t>(r)];
      pair.sends = hash_of(plan_.parcels.to(r));
      pair.expects = hash_of(plan_.parcels.from(r));
      pair.sent_bytes = bytes_of(plan_.parcels.to(r));
      pair.expected_bytes = bytes_of(plan_.parcels.from(r));
    }
  }
  a.source = offer(a);
  a.second = Source::kLane;
  if (plan_.gathers) {
    const Piece& result = plan_.out[0];
    a.second_place = neighbours_->arena()->offset_of(result.data, result.bytes());
    if (a.second_place >= 0) {
      a.second = Source::kInPlace;
      offers_in_place_ = true;
    } else {
      offers_second_ = Cursor(plan_.out, kCommonChunkBytes);
    }
  }
  a.turn.store(turn_, std::memory_order_release);
}

// Puts small data into the announcement, or says where large data lies, or leaves it to the lanes.
Source HostComm::offer(Announcement& a) {
  const bool to_all = plan_.offer == Plan::Offer::kToAll;
  if (plan_.offered_bytes <= kInlineBytes) {
    int64_t at = 0;
    const auto put = [&](const Parcel& parcel) {
      for (const Piece& p : parcel) {
        if (p.count == 0) continue;
        copy_bytes(a.data.data() + at, p.data, p.bytes());
        at += aligned(p.bytes());
      }
    };
    if (to_all) {
      put(plan_.to_all);
    } else {
      for (int r = 0; r < size_; ++r) {
        a.pairs[static_cast<size_t>(r)].first = at;
        if (r != rank_) put(plan_.parcels.to(r));
      }
    }
    return Source::kInline;
  }
  if (place_all(a)) {
    offers_in_place_ = true;
    return Source::kInPlace;
  }
  if (to_all) {
    offers_all_ = Cursor(plan_.to_all, kCommonChunkBytes);
  } else {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      peers_[static_cast<size_t>(r)].offers = Cursor(plan_.parcels.to(r), chunk_bytes_);
    }
  }
  return Source::kLane;
}

// Does all of it lie in the arena?
bool HostComm::place_all(Announcement& a) {
  size_t n = 0;
  const auto place = [&](const Parcel& parcel) {
    if (n + parcel.size() > a.places.size()) return false;
    for (const Piece& p : parcel) {
      const int64_t offset = p.count == 0 ? 0 : neighbours_->arena()->offset_of(p.data, p.bytes());
      if (offset < 0) return false;
      a.places[n++] = offset;
    }
    return true;
  };
  if (plan_.offer == Plan::Offer::kToAll) return place(plan_.to_all);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    a.pairs[static_cast<size_t>(r)].first = static_cast<int64_t>(n);
    if (!place(plan_.parcels.to(r))) return false;
  }
  return true;
}

bool HostComm::has_announced(int r) {
  Peer& p = peers_[static_cast<size_t>(r)];
  if (p.slot == nullptr) {
    p.found = neighbours_->find(members_[static_cast<size_t>(r)], comm_, size_);
    p.slot = p.found.slot;
    if (p.slot == nullptr) return false;
  }
  p.said = &p.slot->announcements[static_cast<size_t>((turn_ - 1) % 2)];
  return p.said->turn.load(std::memory_order_acquire) == turn_;
}

void HostComm::check(const Call& call, int r) const {
  const Announcement& theirs = *peers_[static_cast<size_t>(r)].said;
  if (theirs.digest == digest_ && !plan_.compares_pairs) return;
  const auto header = [&](const Announcement& a, int to) {
    Header h = a.header;
    if (plan_.compares_pairs && h.key.op == static_cast<uint8_t>(call.op)) {
      const Pair& pair = a.pairs[static_cast<size_t>(to)];
      h.sends = pair.sends;
      h.expects = pair.expects;
      h.sent_bytes = pair.sent_bytes;
      h.expected_bytes = pair.expected_bytes;
    }
    return h;
  };
  const std::string what = difference(header(*said_, r), r, header(theirs, rank_));
  if (what.empty()) return;
  check_held(r);
  throw CallsDiffer(r, what);
}

// Throws where what was read of rank r may have been of another Comm.
void HostComm::check_held(int r) const {
  const int world_rank = members_[static_cast<size_t>(r)];
  if (neighbours_->holds(peers_[static_cast<size_t>(r)].found, world_rank, comm_)) return;
  throw TransportError(TransportError::Kind::kPeer, world_rank, "it has closed its Comm");
}

void HostComm::finish() {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) check_held(r);
  }
  if (read_in_place_) {
    // A rank that failed may have written over what was read. The fence of run() is the other half.
    std::atomic_thread_fence(std::memory_order_acquire);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;  // no peer of itself: it has no slot
      if (!peers_[static_cast<size_t>(r)].slot->failed.load(std::memory_order_relaxed)) continue;
      throw TransportError(TransportError::Kind::kInterrupted, members_[static_cast<size_t>(r)],
                           "it failed while its memory was read");
    }
  }
  mine_.finished.value.store(turn_, std::memory_order_release);
  if (!offers_in_place_) return;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Peer& p = peers_[static_cast<size_t>(r)];
    until([&] { return p.slot->finished.value.load(std::memory_order_acquire) >= turn_; },
          [&] { return r; });
  }
}

template <class F, class G>
void HostComm::until(F&& f, G&& behind) {
  Patience patience(spins_);
  for (int looks = 0; looks < kUnwatched; ++looks) {
    if (f()) return;
    patience.pause();
  }
  Stuck stuck(f, patience);
  link_->standing->wait(stuck, behind());
}

}  // namespace dtensor::comm::shm
