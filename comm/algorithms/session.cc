#include "dtensor/comm/algorithms/session.h"

#include <algorithm>
#include <cstring>

#include "dtensor/comm/hash.h"

namespace dtensor::comm {
namespace {

// Up to this size, every rank sends a frame to every other: one latency, and data rides along.
// Beyond it, ranks agree in log2(size) rounds.
constexpr int kAllPairs = 8;
// Pieces below the first are packed together until a message has the second.
constexpr int64_t kLeastAlone = 16 * 1024;
constexpr int64_t kPackBytes = 64 * 1024;

enum class Channel : uint64_t { kFrame, kData };

uint64_t tag_of(uint64_t comm, Channel channel) {
  return internal::mix(comm, static_cast<uint64_t>(channel));
}

bool fits_frame(std::span<const Piece> pieces) {
  return bytes_of(pieces) <= static_cast<int64_t>(sizeof(Frame::data));
}

void pack(std::span<const Piece> pieces, std::byte* to) {
  for (const Piece& p : pieces) {
    if (p.count == 0) continue;
    std::memcpy(to, p.data, static_cast<size_t>(p.bytes()));
    to += p.bytes();
  }
}

void unpack(const std::byte* from, std::span<const Piece> pieces) {
  for (const Piece& p : pieces) {
    if (p.count == 0) continue;
    std::memcpy(p.data, from, static_cast<size_t>(p.bytes()));
    from += p.bytes();
  }
}

// Calls f(run) for each run of pieces that makes a message: one piece, or small ones together.
// Depends on the sizes of the pieces only, so that sender and receiver find the same runs.
template <class F>
void for_each_run(std::span<const Piece> pieces, F&& f) {
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin + 1;
    int64_t bytes = pieces[begin].bytes();
    if (bytes < kLeastAlone) {
      while (end < pieces.size() && pieces[end].bytes() < kLeastAlone && bytes < kPackBytes) {
        bytes += pieces[end++].bytes();
      }
    }
    if (bytes > 0) f(pieces.subspan(begin, end - begin), bytes);
    begin = end;
  }
}

}  // namespace

struct Session::Pending {
  std::unique_ptr<Transfer> transfer;
  int peer;
};

struct Session::Packed {
  const std::byte* staging;
  std::vector<Piece> pieces;
};

void Link::count(int64_t payload, int64_t wire) {
  for (Link* link = this; link != nullptr; link = link->parent.get()) {
    link->payload_bytes.fetch_add(payload, std::memory_order_relaxed);
    link->wire_bytes.fetch_add(wire, std::memory_order_relaxed);
  }
}

void Link::count_in_place(int64_t bytes) {
  for (Link* link = this; link != nullptr; link = link->parent.get()) {
    link->bytes_in_place.fetch_add(bytes, std::memory_order_relaxed);
  }
}

Session::Session(Link& link, const Call& call)
    : link_(link),
      call_(call),
      rank_(link.standing->setting().rank),
      size_(static_cast<int>(link.standing->setting().members.size())),
      header_(make_header(call, link.standing->setting().comm, rank_)) {}

Session::~Session() = default;

int Session::world_rank(int peer) const {
  return link_.standing->setting().members[static_cast<size_t>(peer)];
}

void Session::set_payload(int64_t bytes) {
  counts_payload_ = false;
  link_.count(bytes, 0);
}

void Session::count(int64_t payload, int64_t wire) {
  link_.count(counts_payload_ ? payload : 0, wire);
}

void Session::begin(std::span<const Parcel> send, std::span<const Parcel> receive) {
  // Counts that only two ranks share can be compared by those two only.
  const bool pairs = call_.op == OpKind::kAllToAll || call_.op == OpKind::kExchange;
  if (pairs || size_ <= kAllPairs) {
    swap_frames(send, receive);
    finish();
  } else {
    roll_call();
    if (moves_) move(send, receive);
  }
}

void Session::agree(std::span<const Parcel> send, std::span<const Parcel> receive) {
  moves_ = false;
  begin(send, receive);
  moves_ = true;
}

void Session::move(std::span<const Parcel> send, std::span<const Parcel> receive) {
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    const int from = (rank_ - step + size_) % size_;
    post_receive(from, receive[static_cast<size_t>(from)]);
    post_send(to, send[static_cast<size_t>(to)]);
  }
  copy_own(send, receive);
  finish();
}

void Session::swap_frames(std::span<const Parcel> send, std::span<const Parcel> receive) {
  std::vector<Pending> arrivals;
  std::vector<Frame*> frames;
  const uint64_t tag = tag_of(header_.comm, Channel::kFrame);
  for (int step = 1; step < size_; ++step) {
    const int from = (rank_ - step + size_) % size_;
    frames.push_back(frames_.emplace_back(std::make_unique<Frame>()).get());
    arrivals.push_back(
        {link_.transport->receive(world_rank(from), tag, frames.back(), sizeof(Frame)), from});
  }
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    const auto& pieces = send[static_cast<size_t>(to)];
    send_frame(to, pieces, receive[static_cast<size_t>(to)]);
    if (moves_ && !fits_frame(pieces)) post_send(to, pieces);
  }
  if (moves_) copy_own(send, receive);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const int from = arrivals[i].peer;
    const auto& pieces = receive[static_cast<size_t>(from)];
    link_.standing->wait(*arrivals[i].transfer, from);
    check_frame(from, send[static_cast<size_t>(from)], pieces, *frames[i]);
    if (moves_ && !fits_frame(pieces)) post_receive(from, pieces);
  }
  for (size_t i = 0; moves_ && i < arrivals.size(); ++i) {
    const auto& pieces = receive[static_cast<size_t>(arrivals[i].peer)];
    if (fits_frame(pieces)) unpack(frames[i]->data.data(), pieces);
  }
}

// The dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier
// synchronization", Int. J. of Parallel Programming 17, 1988), with headers. A rank goes to the
// next round only if the one that it heard is in its own call, and that one has heard its own: so
// whoever finishes knows that all ranks are in this call.
void Session::roll_call() {
  const uint64_t tag = tag_of(header_.comm, Channel::kFrame);
  for (int distance = 1; distance < size_; distance *= 2) {
    const int from = (rank_ - distance + size_) % size_;
    Frame* frame = frames_.emplace_back(std::make_unique<Frame>()).get();
    const Pending arrival{link_.transport->receive(world_rank(from), tag, frame, sizeof(Frame)),
                          from};
    send_frame((rank_ + distance) % size_, {}, {});
    link_.standing->wait(*arrival.transfer, from);
    check_frame(from, {}, {}, *frame);
  }
}

// The header to a peer.
Header Session::header_for(std::span<const Piece> send, std::span<const Piece> receive) const {
  Header header = header_;
  header.sends = hash_of(send);
  header.expects = hash_of(receive);
  header.sent_bytes = bytes_of(send);
  header.expected_bytes = bytes_of(receive);
  return header;
}

void Session::send_frame(int peer, std::span<const Piece> send, std::span<const Piece> receive) {
  Frame* frame = frames_.emplace_back(std::make_unique<Frame>()).get();
  frame->header = header_for(send, receive);
  const bool rides = moves_ && fits_frame(send);
  if (rides) pack(send, frame->data.data());
  count(rides ? frame->header.sent_bytes : 0, sizeof(Frame));
  pending_.push_back({link_.transport->send(world_rank(peer), tag_of(header_.comm, Channel::kFrame),
                                            frame, sizeof(Frame)),
                      peer});
}

void Session::check_frame(int peer, std::span<const Piece> send, std::span<const Piece> receive,
                          const Frame& frame) {
  const std::string what = difference(header_for(send, receive), peer, frame.header);
  if (!what.empty()) throw CallsDiffer(peer, what);
}

void Session::post_send(int peer, std::span<const Piece> pieces) {
  for_each_run(pieces, [&](std::span<const Piece> run, int64_t bytes) {
    void* data = run[0].data;
    if (run.size() > 1) {
      auto& staging =
          staging_.emplace_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
      pack(run, staging.get());
      data = staging.get();
    }
    count(bytes, bytes);
    post_one(true, peer, data, bytes);
  });
}

void Session::post_receive(int peer, std::span<const Piece> pieces) {
  for_each_run(pieces, [&](std::span<const Piece> run, int64_t bytes) {
    void* data = run[0].data;
    if (run.size() > 1) {
      auto& staging =
          staging_.emplace_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
      data = staging.get();
      packed_.push_back({staging.get(), {run.begin(), run.end()}});
    }
    post_one(false, peer, data, bytes);
  });
}

void Session::post_one(bool sends, int peer, void* data, int64_t bytes) {
  Transport& transport = *link_.transport;
  const uint64_t tag = tag_of(header_.comm, Channel::kData);
  const int64_t limit = transport.max_message_bytes();
  for (int64_t begin = 0; begin < bytes; begin += limit) {
    auto* at = static_cast<std::byte*>(data) + begin;
    const int64_t n = std::min(limit, bytes - begin);
    pending_.push_back({sends ? transport.send(world_rank(peer), tag, at, n)
                              : transport.receive(world_rank(peer), tag, at, n),
                        peer});
  }
}

void Session::start_send(int peer, const Piece& piece) {
  count(piece.bytes(), piece.bytes());
  post_one(true, peer, piece.data, piece.bytes());
}

std::unique_ptr<Transfer> Session::start_receive(int peer, const Piece& piece) {
  return link_.transport->receive(world_rank(peer), tag_of(header_.comm, Channel::kData),
                                  piece.data, piece.bytes());
}

void Session::wait(Transfer& transfer, int peer) { link_.standing->wait(transfer, peer); }

void Session::copy_own(std::span<const Parcel> send, std::span<const Parcel> receive) {
  const Parcel& from = send[static_cast<size_t>(rank_)];
  const Parcel& to = receive[static_cast<size_t>(rank_)];
  internal_check(from.size() == to.size(), "a rank's own parcels do not pair up");
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].count == 0 || from[i].data == to[i].data) continue;
    std::memcpy(to[i].data, from[i].data, static_cast<size_t>(from[i].bytes()));
  }
}

void Session::finish() {
  for (const Pending& p : pending_) link_.standing->wait(*p.transfer, p.peer);
  pending_.clear();
  for (const Packed& p : packed_) unpack(p.staging, p.pieces);
  packed_.clear();
  staging_.clear();
  frames_.clear();
}

}  // namespace dtensor::comm
