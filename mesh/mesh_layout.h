// MeshLayout: a named array of ranks, pure: no communication. Up to 6 dims; any ranks in any
// order, each at most once. Immutable; copying copies a handle.
// A weight per coordinate of a mesh dim says how much of a cut length its ranks take (uneven
// devices); without weights all take alike.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/error.h"

namespace dtensor {

class TextCursor;

inline constexpr int kMaxMeshDims = 6;

struct MeshDim {
  std::string name;
  int size = 1;
  std::vector<int64_t> weights = {};  // empty, or one per coordinate
};

// A position on every mesh dim.
struct Coordinate {
  std::array<int, kMaxMeshDims> at{};
  int ndim = 0;

  int operator[](int dim) const { return at[static_cast<size_t>(dim)]; }
  int& operator[](int dim) { return at[static_cast<size_t>(dim)]; }
  friend bool operator==(const Coordinate&, const Coordinate&) = default;
};

class MeshLayout {
 public:
  // The mesh of no dims: what a tensor on no mesh has. One holder, rank 0.
  MeshLayout();
  // Ranks fill the mesh row-major; empty means 0..n-1. ArgumentError for a bad name, size, weight,
  // a rank given twice or a wrong number of ranks.
  explicit MeshLayout(std::vector<MeshDim> dims, std::vector<int> ranks = {});

  int ndim() const;
  int size() const;  // ranks in all
  int size(int dim) const;
  const std::string& name(int dim) const;
  std::span<const int64_t> weights(int dim) const;  // empty for equal weights
  // ArgumentError that lists the names of this mesh.
  int dim(std::string_view name) const;

  const std::vector<int>& ranks() const;  // row-major
  int rank_at(const Coordinate& coordinate) const;
  Coordinate coordinate_at(int index) const;                // of ranks()[index]
  std::optional<Coordinate> coordinate_of(int rank) const;  // nullopt outside the mesh
  bool contains(int rank) const { return coordinate_of(rank).has_value(); }
  // The ranks that differ from `of` only on `dims`, row-major over dims in the order given.
  std::vector<int> group(const Coordinate& of, std::span<const int> dims) const;

  uint64_t hash() const;
  // Equal names, sizes, weights and ranks.
  friend bool operator==(const MeshLayout& a, const MeshLayout& b);

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

// "dp=2,tp=2", with "@3,1,0,2" where the ranks are not 0..n-1.
std::string to_string(const MeshLayout& mesh);
// The opposite. `4-7` is a range of ranks. ArgumentError showing the spot.
MeshLayout parse_mesh(std::string_view text);

// The part of parse_mesh that layout text shares: reads up to a ':' or the end, and makes no mesh
// yet, since weights come later in the text.
struct ParsedMesh {
  std::vector<MeshDim> dims;
  std::vector<int> ranks;
};
ParsedMesh read_mesh(TextCursor& in);

}  // namespace dtensor
