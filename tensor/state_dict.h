// State dicts: names with tensors, onto a mesh and back, in one Comm call per step for all.

#pragma once

#include <map>
#include <optional>
#include <string>

#include "dtensor/base/call_site.h"
#include "dtensor/tensor/dtensor.h"
#include "dtensor/tensor/pending.h"

namespace dtensor {

using TensorMap = std::map<std::string, Tensor>;
using DTensorMap = std::map<std::string, DTensor>;

// Where a tensor of the dict goes, and what it is.
struct StatePlace {
  Layout layout;  // of the mesh; its shape is the global one
  DType dtype = DType::kFloat32;
};
using StatePlaces = std::map<std::string, StatePlace>;

struct DistributeStateOptions {
  // Of the root Comm: only that rank's `full` is read, and each rank is sent what it needs. None:
  // every rank has `full`, and nothing is sent.
  std::optional<int> from_rank = {};
  CallSite site = CallSite::here();
};
// Every tensor onto the mesh: a Shard takes its part, a Partial keeps the value at coordinate 0.
// Called by every rank of the mesh (outside it gives handles) and by `from_rank`. Results have
// memory of their own.
// ArgumentError that lists the names missing in `full`, those not in `places`, and tensors of
// another shape or dtype; with `from_rank` on that rank alone.
[[nodiscard]] DTensorMap distribute_state(const TensorMap& full, const DeviceMesh& mesh,
                                          const StatePlaces& places,
                                          const DistributeStateOptions& options = {});
Pending<DTensorMap> distribute_state_async(const TensorMap& full, const DeviceMesh& mesh,
                                           const StatePlaces& places,
                                           const DistributeStateOptions& options = {});

struct GatherStateOptions {
  // Of the root Comm: the whole values there, undefined tensors on the others. None: on every rank
  // of the mesh.
  std::optional<int> to_rank = {};
  CallSite site = CallSite::here();
};
// The whole value of every tensor. All lie on one mesh (ArgumentError otherwise) or on none. Called
// by every rank of the mesh and by `to_rank`. A result shares memory with the dict where nothing
// had to move.
[[nodiscard]] TensorMap gather_state(const DTensorMap& state,
                                     const GatherStateOptions& options = {});
Pending<TensorMap> gather_state_async(const DTensorMap& state,
                                      const GatherStateOptions& options = {});

}  // namespace dtensor
