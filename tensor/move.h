// Move: runs ReshardPlans on local tensors, below autograd. A list of tensors moves in one Comm
// call per step where their plans have the same kinds of steps on the same groups.

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
  Tensor into = {};  // contiguous memory for the result, where given
  std::string label = {};
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
  // Waits and returns the new local tensors. Plans of several communicating steps go on here.
  // A result aliases its input where nothing had to move.
  std::vector<Tensor> finish();

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
