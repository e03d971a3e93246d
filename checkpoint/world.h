// The ranks that save and load together, and how they agree. Internal.

#pragma once

#include <functional>
#include <string>

#include "dtensor/checkpoint/state.h"
#include "dtensor/comm/comm.h"

namespace dtensor::checkpoint {

class World {
 public:
  World() = default;  // this rank alone
  explicit World(comm::Comm& root);
  // Of the root Comm that the mesh of the first parameter on one has; where none lies on a mesh, of
  // this Context's; else this rank alone. Looks at nothing else of `state`, so that ranks whose
  // states are wrong still know of whom they are. Sends no message.
  static World of(const State& state);

  // Of the tensors' root Comm, and alone where none lies on a mesh. ArgumentError for tensors of
  // two root Comms.
  static World of_tensors(const NamedState& state);

  int rank() const { return rank_; }
  int size() const { return size_; }
  comm::Comm* comm() const { return root_; }  // nullptr: alone

  // The id of the next attempt, equal on all ranks that have called it as often. No message.
  std::string next_attempt_id() const;

  // Rank 0's text on every rank; longer ones are cut at 4000 bytes. One broadcast.
  std::string told_by_first(const std::string& text) const;
  // Runs f on every rank, without messages inside. Where it threw on one, all throw
  // CheckpointError: that rank with its own text, the others with the text and number of the lowest
  // rank that failed. One all-reduce of a number.
  void together(const std::function<void()>& f) const;
  // The same, but a rank on which f threw an Error throws that very error: who was called wrongly
  // gets the ArgumentError that says so.
  void together_with_own(const std::function<void()>& f) const;

 private:
  std::string told_by(int rank, const std::string& text) const;

  comm::Comm* root_ = nullptr;  // nullptr: alone
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace dtensor::checkpoint
