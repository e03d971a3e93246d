// Spec: how tensors of one number of dims lie on a mesh: the mesh, a placement per mesh dim, and
// for every cut tensor dim its levels in shard order. Immutable and interned in the Context, so
// that equal Specs of one rank are one object and comparing them is comparing pointers.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/mesh/mesh_layout.h"
#include "dtensor/placement/placement.h"

namespace dtensor {

// One mesh dim's cut of a tensor dim. Its weights are those of the mesh dim.
struct Level {
  int mesh_dim = 0;
  int64_t unit = 1;
  friend bool operator==(const Level&, const Level&) = default;
};

class Spec {
 public:
  Spec();  // no mesh, of a scalar

  // Placements by mesh dim; missing ones at the end are R. Several mesh dims that cut one tensor
  // dim do so from left to right, with unit 1. Negative shard dims are taken from the end.
  // PlacementError: Shard of a scalar or of a dim that is not there, two ops in one tensor, more
  // placements than mesh dims.
  Spec(const MeshLayout& mesh, int ndim, std::span<const Placement> placements);

  // With the levels of every tensor dim given in shard order (levels.size() == ndim) and the
  // Partial mesh dims; the other mesh dims are R. PlacementError for a mesh dim used twice.
  static Spec from_levels(const MeshLayout& mesh, std::span<const std::vector<Level>> levels,
                          std::span<const Placement> placements);

  const MeshLayout& mesh() const;
  int ndim() const;
  Placement placement(int mesh_dim) const;
  std::span<const Placement> placements() const;        // one per mesh dim
  std::span<const Level> levels(int tensor_dim) const;  // outermost first
  const Level* level(int mesh_dim) const;               // nullptr where it does not cut
  bool is_replicated() const;                           // R on every mesh dim
  bool has_partial() const;
  PartialOp partial_op() const;  // where has_partial()

  // The same with one mesh dim changed. Other mesh dims keep their levels; a new Shard is appended
  // last, with `unit`. A Shard on the dim that this mesh dim already cuts keeps its level where
  // the unit is equal (or not given: 0), else moves last.
  Spec with(int mesh_dim, Placement placement, int64_t unit = 0) const;
  // The same with several mesh dims changed at once: the new Shards are appended in this order,
  // after all that stay. `placements` has one entry per entry of `mesh_dims`.
  Spec with(std::span<const int> mesh_dims, std::span<const Placement> placements) const;

  uint64_t hash() const;
  friend bool operator==(const Spec& a, const Spec& b);
  // The identity of the interned object: equal for equal Specs of one Context.
  const void* id() const { return data_.get(); }

 private:
  struct Data;
  class Table;
  static const std::shared_ptr<const Data>& none();
  explicit Spec(const Data& data);  // interns it
  std::shared_ptr<const Data> data_;
};

// "[dp:S(0), tp:R]", with ";order=0:tp,dp" and ";unit=0:tp:32" where they are not the default.
std::string to_string(const Spec& spec);
// That tail alone; empty where all is the default.
std::string options_text(const Spec& spec);

}  // namespace dtensor
