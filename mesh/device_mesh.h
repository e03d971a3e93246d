// DeviceMesh: a MeshLayout together with the Comm of all ranks (the root Comm). Copying copies a
// handle. Two are the same when their layouts are equal and their root Comm is one.
// mesh["tp"] and mesh.slice({"dp", "cp"}) name dims of this mesh; they are not new meshes.

#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/mesh/mesh_layout.h"

namespace dtensor {

class DeviceMesh;

// Some dims of a root mesh, in the order named.
struct MeshSlice;

class DeviceMesh {
 public:
  DeviceMesh();  // no mesh
  // `root` outlives the mesh. Called by every rank of root, also by those outside the mesh; sends
  // no message. Where this rank's Context has no root Comm yet, `root` becomes it
  // (dtensor/comm/root.h). ArgumentError for a rank that root does not have.
  DeviceMesh(comm::Comm& root, std::vector<MeshDim> dims, std::vector<int> ranks = {});
  DeviceMesh(comm::Comm& root, MeshLayout layout);

  bool defined() const { return state_ != nullptr; }
  explicit operator bool() const { return defined(); }

  const MeshLayout& layout() const;  // of no dims where not defined
  int ndim() const { return layout().ndim(); }
  int size() const { return layout().size(); }
  int size(std::string_view dim) const { return layout().size(layout().dim(dim)); }
  int rank() const;  // in root; 0 on no mesh
  // This rank's coordinate; nullopt where this rank is outside the mesh.
  const std::optional<Coordinate>& coordinate() const;
  int coordinate(std::string_view dim) const;

  MeshSlice operator[](std::string_view dim) const;
  MeshSlice slice(std::initializer_list<std::string_view> dims) const;
  MeshSlice all() const;

  // The Comm of this rank's group over `dims` (indices, in shard order), ordered as
  // MeshLayout::group. Made on first use, without a message; kept.
  comm::Comm& group(std::span<const int> dims) const;
  // The Comm of any ranks of the root, ascending, of this mesh and of others: what moves between
  // meshes goes over. Made on first use by each of these ranks, without a message; kept with this
  // mesh. ArgumentError where this rank is not among them.
  comm::Comm& group_of_ranks(std::span<const int> ranks) const;
  comm::Comm& root() const;

  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct MeshSlice {
  DeviceMesh mesh;
  std::vector<int> dims;
};

}  // namespace dtensor
