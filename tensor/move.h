// Move: runs ReshardPlans on local tensors, below autograd. A list of tensors moves in one Comm
// call per step where their plans have the same kinds of steps on the same groups (all-reduces are
// one call each); dtypes may differ. Works on the tensors' memory where it can: nothing is packed
// where the pieces that a rank sends or receives lie one after the other.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/mesh/device_mesh.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/tensor.h"

namespace dtensor {

struct MoveItem {
  Tensor local;  // this rank's piece of `from`; may be strided
  Layout from;
  Layout to;
  // Contiguous memory for the result, where given. Its version stays: it is memory that had these
  // values before, or that nobody has read.
  Tensor into = {};
  std::string label = {};  // a parameter's name; the first is the label of the Comm call
};

struct MoveOptions {
  std::string_view op = "redistribute";
  Cause cause = Cause::kExplicit;
  std::string_view of = {};
  CallSite site = {};
};

class Move {
 public:
  // Enters the ledger and issues what it can without waiting. Called by every rank of the mesh.
  static Move start(const DeviceMesh& mesh, std::vector<MoveItem> items,
                    const MoveOptions& options);
  // Waits and returns the new local tensors, contiguous but where one aliases its input: where
  // nothing had to move and no `into` was given. Plans of several communicating steps go on here.
  // Once; throws CommError.
  std::vector<Tensor> finish();

  // A Move that goes without finish() lets its messages run out; their memory is kept.
  Move(Move&&) noexcept;
  Move& operator=(Move&&) noexcept;
  ~Move();

 private:
  struct State;
  explicit Move(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// start and finish of one tensor.
Tensor move_local(const DeviceMesh& mesh, const MoveItem& item, const MoveOptions& options);

}  // namespace dtensor
