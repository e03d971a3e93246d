// Control: what ranks tell each other beside the data: where they are, and why a Comm ended. It
// makes failures named and equal on all ranks: a wait that stalls asks it, a rank that finds a
// fault tells it. Bodies: shared memory (threads), sockets (processes).

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/comm/comm_error.h"

namespace dtensor::comm {

// Why a Comm ended. One per Comm, the same on every rank.
struct Verdict {
  CommErrorKind kind = CommErrorKind::kAborted;
  int culprit = -1;  // rank of the world
  bool proved = false;
  std::string detail = {};
  // Its accuser lost its connection to the culprit, or hears nothing from it; others may know
  // better.
  bool unheard = false;
};

// Where a rank is on a Comm: the call it is in or last made, and the hash of all its calls so far.
struct Position {
  int64_t sequence = -1;  // -1: none yet
  bool inside = false;    // in the call, or between calls
  bool closed = false;    // the rank has ended its Comm: no call will follow
  uint64_t history = 0;
  std::string call;  // the call in words: "all_reduce sum f32[100] \"loss\""
};

// Thread-safe. `comm` is the id of a Comm; ranks are of the world. Destroying a Control says
// goodbye: a rank that left so is not lost, and is answered for as closed on all its Comms.
class Control {
 public:
  virtual ~Control() = default;

  // Registers who answers for this rank on a Comm. `where` is short, and is called from any
  // thread, also one time when the returned handle goes: that answer, marked closed, stays. A rank
  // that has not registered answers Position{}.
  virtual std::shared_ptr<void> serve(uint64_t comm, std::function<Position()> where) = 0;
  // Where are they? nullopt for a rank that did not answer within `wait`. Returns early where all
  // answered or are lost. May be called with this rank among `ranks`.
  virtual std::vector<std::optional<Position>> ask(uint64_t comm, std::span<const int> ranks,
                                                   std::chrono::nanoseconds wait) = 0;
  // Proposes a verdict to the living members and returns the one that stands: the first, or, of
  // several at one time, the same one for all. Bounded by `wait`.
  virtual Verdict settle(uint64_t comm, std::span<const int> members, const Verdict& proposal,
                         std::chrono::nanoseconds wait) = 0;
  // Has one been given? Also of a Comm that this rank has not made yet. Does not block.
  virtual std::optional<Verdict> verdict(uint64_t comm) = 0;
  // Is a rank known to be lost (its connection is gone without goodbye, or it does not answer)?
  // Does not block.
  struct Loss {
    bool proved = false;
    std::string detail = {};  // "connection reset"
  };
  virtual std::optional<Loss> lost(int rank) = 0;
  // Called from a thread of the Control after every new verdict or loss. Short; must not call
  // back. Unsubscribed when the returned handle goes.
  virtual std::shared_ptr<void> subscribe(std::function<void()> on_event) = 0;
};

}  // namespace dtensor::comm
