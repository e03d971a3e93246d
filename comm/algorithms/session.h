// Session: one call in progress on one rank: it agrees with the others that all are in the same
// call, and moves data. The collectives are written over it.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/algorithms/choice.h"
#include "dtensor/comm/algorithms/frame.h"
#include "dtensor/comm/algorithms/parcels.h"
#include "dtensor/comm/algorithms/standing.h"
#include "dtensor/comm/call.h"
#include "dtensor/comm/transport.h"

namespace dtensor::comm {

// What a Comm's calls share: its place in the world and its account.
struct Link {
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Standing> standing;
  Choice choice;
  std::shared_ptr<Link> parent;  // of a group: its bytes count there, too
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> payload_bytes{0};
  std::atomic<int64_t> wire_bytes{0};
  std::atomic<int64_t> bytes_in_place{0};

  void count(int64_t payload, int64_t wire);
  void count_in_place(int64_t bytes);
};

// Ranks of a Comm make different calls.
class CallsDiffer : public Error {
 public:
  CallsDiffer(int peer, const std::string& what) : Error(what), peer(peer) {}
  int peer;
};

// Used by one thread. Throws TransportError and CallsDiffer.
class Session {
 public:
  Session(Link& link, const Call& call);
  ~Session();  // cancels what is under way
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Choice& choice() const { return link_.choice; }

  // The first step of every call: agrees on it with all ranks, and moves `send[p]` to rank p and
  // `receive[p]` from rank p (this rank's own parcel is copied). No rank returns before all ranks
  // have been found to be in the same call. When it returns, all memory of `send` may be written.
  void begin(std::span<const Parcel> send, std::span<const Parcel> receive);
  // The same for data that something else moves afterwards: all is compared, and no memory of the
  // parcels is touched.
  void agree(std::span<const Parcel> send, std::span<const Parcel> receive);
  // Payload is what the operation has to move at least; where an algorithm sends more, for the sake
  // of latency, it says here how much counts of what it sends from now on.
  void set_payload(int64_t bytes);
  // Moves more data, in a call that begin() agreed on.
  void move(std::span<const Parcel> send, std::span<const Parcel> receive);

  // The same by single messages, for pipelines. Sends are complete after finish(); between two
  // ranks, sends and receives meet in the order in which they were posted. At most
  // max_message_bytes() each, and not empty.
  int64_t max_message_bytes() const { return link_.transport->max_message_bytes(); }
  void start_send(int peer, const Piece& piece);
  std::unique_ptr<Transfer> start_receive(int peer, const Piece& piece);
  void wait(Transfer& transfer, int peer);
  void finish();

 private:
  struct Pending;  // a transfer and its peer
  struct Packed;   // a receive that is unpacked when it is complete

  void swap_frames(std::span<const Parcel> send, std::span<const Parcel> receive);
  void roll_call();
  Header header_for(std::span<const Piece> send, std::span<const Piece> receive) const;
  void send_frame(int peer, std::span<const Piece> send, std::span<const Piece> receive);
  void check_frame(int peer, std::span<const Piece> send, std::span<const Piece> receive,
                   const Frame& frame);
  void post_send(int peer, std::span<const Piece> pieces);
  void post_receive(int peer, std::span<const Piece> pieces);
  void post_one(bool sends, int peer, void* data, int64_t bytes);
  void copy_own(std::span<const Parcel> send, std::span<const Parcel> receive);
  void count(int64_t payload, int64_t wire);
  int world_rank(int peer) const;

  Link& link_;
  const Call& call_;
  const int rank_;
  const int size_;
  const Header header_;
  bool counts_payload_ = true;
  bool moves_ = true;                                  // or only compares
  std::vector<std::unique_ptr<Frame>> frames_;         // in flight
  std::vector<std::unique_ptr<std::byte[]>> staging_;  // in flight
  std::vector<Packed> packed_;
  std::vector<Pending> pending_;  // last, so that it goes first: transfers use the memory above
};

}  // namespace dtensor::comm
