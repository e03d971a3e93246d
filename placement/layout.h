// Layout: a Spec and a global shape: which elements of a tensor each rank holds.
// Pure and cheap; every boundary comes from dtensor/base/cut.h.

#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/cut.h"
#include "dtensor/base/shape.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// An index range of the global tensor.
struct Box {
  Shape offset;
  Shape size;

  int64_t numel() const { return size.numel(); }
  bool empty() const { return numel() == 0; }
  friend bool operator==(const Box&, const Box&) = default;
};

Box intersect(const Box& a, const Box& b);  // of size 0 on some dim where they are disjoint
std::string to_string(const Box& box);      // "[0:3,2:4]"

class Layout {
 public:
  Layout() = default;  // a scalar on no mesh
  // ArgumentError where spec.ndim() != shape.ndim() or a dim is negative.
  Layout(Spec spec, const Shape& shape);
  Layout(const MeshLayout& mesh, const Shape& shape, std::span<const Placement> placements);
  Layout(const MeshLayout& mesh, const Shape& shape, std::initializer_list<Placement> placements);
  static Layout replicated(const MeshLayout& mesh, const Shape& shape);

  const Spec& spec() const { return spec_; }
  const Shape& shape() const { return shape_; }
  const MeshLayout& mesh() const { return spec_.mesh(); }
  int ndim() const { return shape_.ndim(); }
  Placement placement(int mesh_dim) const { return spec_.placement(mesh_dim); }

  // The range of a tensor dim that a coordinate holds. ArgumentError for a dim that is not there.
  Range range(int tensor_dim, const Coordinate& at) const;
  Box box(const Coordinate& at) const;
  Shape local_shape(const Coordinate& at) const { return box(at).size; }
  Box box_of(int rank) const;  // ArgumentError outside the mesh

  Layout with(int mesh_dim, Placement placement, int64_t unit = 0) const {
    return Layout(spec_.with(mesh_dim, placement, unit), shape_);
  }
  // Several mesh dims in order; dims not named stay.
  Layout with(std::span<const int> mesh_dims, std::span<const Placement> placements) const;

  uint64_t hash() const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Spec spec_;
  Shape shape_;
};

// 2.7: is tensor dim `da` of `a` cut like tensor dim `db` of `b`? The same mesh dims in the same
// order, with equal levels or, for this length, equal boundaries on every rank.
bool cut_alike(const Layout& a, int da, const Layout& b, int db);

// Every dim cut alike, and the same Partial: moving from one to the other moves nothing.
bool equal_boundaries(const Layout& a, const Layout& b);

// Layout text: "dp=2,tp=2@3,1,0,2:S(0),S(0);order=0:tp,dp;unit=0:tp:32;weights=tp:2,1".
std::string to_string(const Layout& layout);
// Reads it, for a tensor of this shape. ArgumentError or PlacementError showing the spot.
Layout parse_layout(std::string_view text, const Shape& shape);

}  // namespace dtensor
