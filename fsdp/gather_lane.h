// GatherLane: Comms for gathers alone, so that a gather does not queue behind a reduction: a mesh
// of the same ranks and dims, on a root Comm of its own that carries nothing but these groups.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/mesh/device_mesh.h"

namespace dtensor::fsdp {

class GatherLane {
 public:
  // Without a message. All ranks of the mesh make theirs in the same order.
  explicit GatherLane(const DeviceMesh& mesh);
  // Every rank of this one's group over `dims` of the mesh says that it has made the same gathers:
  // returns when all have; CommError (Mismatch) naming the gather that another waits in.
  void agree(std::span<const int> dims, std::string_view what) const;
  // To move on. Tensors belong to the other mesh, which compares as another one.
  const DeviceMesh& mesh() const { return gathers_; }

 private:
  std::unique_ptr<comm::Comm> root_;  // outlives gathers_
  DeviceMesh gathers_;
};

}  // namespace dtensor::fsdp
