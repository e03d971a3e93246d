// How a HostComm moves the data of a call, once all ranks are known to be in it.

#include <algorithm>

#include "dtensor/comm/algorithms/reduction.h"
#include "dtensor/comm/shm/copy.h"
#include "dtensor/comm/shm/host_comm.h"

namespace dtensor::comm::shm {
namespace {

std::byte* in_piece(const Parcel& parcel, size_t piece, int64_t offset) {
  return static_cast<std::byte*>(parcel[piece].data) + offset;
}

}  // namespace

void HostComm::prepare() {
  const bool to_all = plan_.offer == Plan::Offer::kToAll;
  const bool small = plan_.reduces && plan_.offered_bytes <= kInlineBytes;
  reduces_ = plan_.reduces ? Cursor(plan_.out, small ? kInlineBytes : chunk_bytes_) : Cursor();
  int64_t in_place = 0;
  for (int r = 0; r < size_; ++r) {
    Peer& p = peers_[static_cast<size_t>(r)];
    p.takes = p.takes_second = Cursor();
    if (r == rank_) continue;
    if (p.said->source == Source::kInPlace) {
      in_place += bytes_of(plan_.reduces ? plan_.out : plan_.parcels.from(r));
      read_in_place_ = true;
    }
    if (p.said->second == Source::kInPlace) {
      in_place += bytes_of(plan_.second.from(r));
      read_in_place_ = true;
    }
    if (plan_.gathers) p.takes_second = Cursor(plan_.second.from(r), kCommonChunkBytes);
    if (plan_.reduces) continue;
    p.takes = Cursor(plan_.parcels.from(r), p.said->source == Source::kInline ? kInlineBytes
                                            : to_all                          ? kCommonChunkBytes
                                                                              : chunk_bytes_);
  }
  if (in_place > 0) link_->count_in_place(in_place);
}

// A step of everything that can go on; false where nothing could.
bool HostComm::advance() {
  bool moved = false;
  for (int step = 1; step < size_; ++step) moved |= pump((rank_ + step) % size_);
  moved |= pump_all(offers_all_, plan_.to_all, INT64_MAX);
  moved |= reduce_next();
  moved |= pump_all(offers_second_, plan_.out, reduces_.passed());
  for (int step = 1; step < size_; ++step) {
    const int r = (rank_ - step + size_) % size_;
    moved |= take(r);
    moved |= take_second(r);
  }
  return moved;
}

bool HostComm::done() const {
  if (!offers_all_.done() || !offers_second_.done() || !reduces_.done()) return false;
  return std::ranges::all_of(peers_, [](const Peer& p) {
    return p.offers.done() && p.takes.done() && p.takes_second.done();
  });
}

// The first rank that has not come as far as this one needs.
int HostComm::lagging() const {
  for (int r = 0; r < size_; ++r) {
    const Peer& p = peers_[static_cast<size_t>(r)];
    if (r == rank_) continue;
    if ((!p.takes.done() || !reduces_.done()) && !has_next(r)) return r;
    if (!p.takes_second.done() || !p.offers.done()) return r;
  }
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) return r;
  }
  return rank_;
}

// Fills the next chunk of the lane to rank r.
bool HostComm::pump(int r) {
  Peer& p = peers_[static_cast<size_t>(r)];
  if (p.offers.done()) return false;
  const auto me = static_cast<size_t>(rank_);
  if (p.published - p.slot->consumed[me].value.load(std::memory_order_acquire) >= kDepth) {
    return false;
  }
  std::byte* lane = mine_.lane(size_, rank_, r, p.published);
  p.offers.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t at) {
    copy_bytes(lane + at, in_piece(plan_.parcels.to(r), piece, offset), bytes);
  });
  mine_.published[static_cast<size_t>(r)].value.store(++p.published, std::memory_order_release);
  return true;
}

// Fills the next chunk of the lane to all, where its end is among the first `available` bytes.
bool HostComm::pump_all(Cursor& cursor, const Parcel& parcel, int64_t available) {
  if (cursor.done()) return false;
  if (available != INT64_MAX) {
    const int64_t end = std::min(cursor.passed() + kCommonChunkBytes, bytes_of(parcel));
    if (end > available) return false;
  }
  const auto me = static_cast<size_t>(rank_);
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Slot& slot = *peers_[static_cast<size_t>(r)].slot;
    const int64_t consumed = slot.consumed_all[me].value.load(std::memory_order_acquire);
    if (published_all_ - consumed >= kDepth) return false;
  }
  std::byte* lane = mine_.lane_to_all(size_, published_all_);
  cursor.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t at) {
    copy_bytes(lane + at, in_piece(parcel, piece, offset), bytes);
  });
  mine_.published_all.value.store(++published_all_, std::memory_order_release);
  return true;
}

// Can the next chunk that rank r offers in the first step be read?
bool HostComm::has_next(int r) const {
  const Peer& p = peers_[static_cast<size_t>(r)];
  if (p.said->source != Source::kLane) return true;
  if (plan_.offer == Plan::Offer::kToAll) {
    return p.slot->published_all.value.load(std::memory_order_acquire) > p.consumed_all;
  }
  const Counter& published = p.slot->published[static_cast<size_t>(rank_)];
  return published.value.load(std::memory_order_acquire) > p.consumed;
}

const std::byte* HostComm::source_of(int r, size_t piece, int64_t offset, int64_t bytes,
                                     int64_t at) const {
  const Peer& p = peers_[static_cast<size_t>(r)];
  const bool to_all = plan_.offer == Plan::Offer::kToAll;
  const int64_t first = to_all ? 0 : p.said->pairs[static_cast<size_t>(rank_)].first;
  switch (p.said->source) {
    case Source::kInline:
      internal_check(first >= 0 && first + at + bytes <= kInlineBytes,
                     "a rank announced data outside its announcement");
      return p.said->data.data() + first + at;
    case Source::kInPlace: {
      const int64_t index = first + static_cast<int64_t>(piece);
      internal_check(index >= 0 && index < kMostPlaces, "a rank announced too many places");
      const std::byte* data =
          neighbours_->at(members_[static_cast<size_t>(r)],
                          p.said->places[static_cast<size_t>(index)] + offset, bytes);
      internal_check(data != nullptr, "a rank announced memory outside its arena");
      return data;
    }
    case Source::kLane:
      break;
  }
  return (to_all ? p.slot->lane_to_all(size_, p.consumed_all)
                 : p.slot->lane(size_, r, rank_, p.consumed)) +
         at;
}

void HostComm::consume(int r) {
  Peer& p = peers_[static_cast<size_t>(r)];
  const auto index = static_cast<size_t>(r);
  if (p.said->source != Source::kLane) return;
  if (plan_.offer == Plan::Offer::kToAll) {
    mine_.consumed_all[index].value.store(++p.consumed_all, std::memory_order_release);
  } else {
    mine_.consumed[index].value.store(++p.consumed, std::memory_order_release);
  }
}

// Copies the next chunk from rank r.
bool HostComm::take(int r) {
  Peer& p = peers_[static_cast<size_t>(r)];
  if (p.takes.done() || !has_next(r)) return false;
  p.takes.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t at) {
    copy_bytes(in_piece(plan_.parcels.from(r), piece, offset),
               source_of(r, piece, offset, bytes, at), bytes, plan_.copy);
  });
  consume(r);
  return true;
}

// Copies the next chunk of the result of rank r. What it writes over, rank r has read before it
// said that it has reduced that much.
bool HostComm::take_second(int r) {
  Peer& p = peers_[static_cast<size_t>(r)];
  if (p.takes_second.done()) return false;
  const Parcel& parcel = plan_.second.from(r);
  if (p.said->second == Source::kInPlace) {
    const int64_t reduced = p.slot->reduced.value.load(std::memory_order_acquire) - p.said->reduced;
    const int64_t begin = p.takes_second.passed();
    if (std::min(begin + kCommonChunkBytes, bytes_of(parcel)) > reduced) return false;
    p.takes_second.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t) {
      const std::byte* data =
          neighbours_->at(members_[static_cast<size_t>(r)], p.said->second_place + offset, bytes);
      internal_check(data != nullptr, "a rank announced memory outside its arena");
      copy_bytes(in_piece(parcel, piece, offset), data, bytes, plan_.copy);
    });
    return true;
  }
  if (p.slot->published_all.value.load(std::memory_order_acquire) <= p.consumed_all) return false;
  const std::byte* lane = p.slot->lane_to_all(size_, p.consumed_all);
  p.takes_second.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t at) {
    copy_bytes(in_piece(parcel, piece, offset), lane + at, bytes, plan_.copy);
  });
  mine_.consumed_all[static_cast<size_t>(r)].value.store(++p.consumed_all,
                                                         std::memory_order_release);
  return true;
}

// Reduces the next chunk, once it is there from every rank.
bool HostComm::reduce_next() {
  if (reduces_.done()) return false;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !has_next(r)) return false;
  }
  int64_t reduced = 0;
  reduces_.next([&](size_t piece, int64_t offset, int64_t bytes, int64_t at) {
    operands_.clear();
    for (int r = 0; r < size_; ++r) {
      operands_.push_back(r == rank_ ? in_piece(plan_.own, piece, offset)
                                     : source_of(r, piece, offset, bytes, at));
    }
    const Piece& out = plan_.out[piece];
    reduce_into(in_piece(plan_.out, piece, offset), operands_, bytes / size_of(out.dtype),
                out.dtype, reduce_op_);
    reduced += bytes;
  });
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) consume(r);
  }
  if (plan_.gathers) {
    reduced_ += reduced;
    mine_.reduced.value.store(reduced_, std::memory_order_release);
  }
  return true;
}

}  // namespace dtensor::comm::shm
