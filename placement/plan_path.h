// Path: a list of steps that a plan may take. PathBuilder makes them: one move after the other,
// lowered to collectives. Layouts here do nothing on mesh dims of size 1.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/placement/overlap.h"
#include "dtensor/placement/reshard_step.h"

namespace dtensor::internal {

// Stands for every payload that is not below it: of another path it may be.
constexpr int64_t kTooManyElements = INT64_MAX - 1;
int64_t payload_of(ElementCount count);  // kTooManyElements at most

struct Path {
  std::vector<ReshardStep> steps;
  int64_t payload = 0;  // kTooManyElements at most

  int messages() const;        // steps that communicate
  void add(ReshardStep step);  // local work is joined with local work before it
  void add(Path path);
};

// `layout` with all these mesh dims changed.
Layout with_all(const Layout& layout, const std::vector<int>& mesh_dims, Placement placement);
// Without what mesh dims of size 1 do: nothing.
Layout without_size_one(const Layout& layout);
// How many levels of tensor dim `d` two layouts of a mesh have in common from the outside: the same
// mesh dims with the same boundaries.
size_t common_levels(const Layout& a, const Layout& b, int d);
// What every rank can cut off from `from` without a message, and without losing what another rank
// wants: where the levels of `from` are the outer ones of `to`, the next ones that `from` has not.
Layout sliced(const Layout& from, const Layout& to);
// `layout` with these mesh dims cutting it further: the first tensor dim that is long enough on
// every rank's piece, else the longest.
Layout cut_further(const Layout& layout, const std::vector<int>& mesh_dims);
// Mesh dims in the order of their levels; those that do not cut are left out.
std::vector<int> in_shard_order(const Layout& layout, const std::vector<int>& mesh_dims);

class PathBuilder {
 public:
  // Only the ranks at `only` take part. `visited` counts, where given.
  explicit PathBuilder(std::vector<PinnedDim> only = {}, int64_t* visited = nullptr)
      : only_(std::move(only)), visited_(visited) {
    for (const PinnedDim& p : only_) pinned_.add(p.mesh_dim);
  }

  // Elements that the ranks hold, that they hold of both, and of all three.
  ElementCount held(const Layout& a) const;
  ElementCount held(const Layout& a, const Layout& b) const;
  ElementCount held(const Layout& a, const Layout& b, const Layout& c) const;
  // On all ranks: does `outer` hold what `inner` holds?
  bool contains(const Layout& outer, const Layout& inner) const;

  // Local work, where there is any.
  void add_local(Path& path, const Layout& from, const Layout& to) const;
  // Local work to a layout with new Partial mesh dims. The last of a path brings back the ranks
  // that took no part.
  enum class Fill : uint8_t { kFirst, kLast };
  void add_fill(Path& path, const Layout& from, const Layout& to, Fill when) const;
  // R and S to R and S: Partial mesh dims stay as they are, each term moves by itself.
  Path movement(const Layout& from, const Layout& to) const;
  // An exchange that makes terms of `mesh_dims`, S in `from` and P in `to`; the others are not P in
  // `to` unless in `from`.
  void add_terms(Path& path, const Layout& from, const Layout& to,
                 const std::vector<int>& mesh_dims) const;
  // Resolves mesh dims (P in `from`) to what they are in `to`: all R, or all S. The parts lie
  // within what a rank holds, or are cut down to what of them lies `within` it.
  void add_reduction(Path& path, const Layout& from, const Layout& to, std::vector<int> mesh_dims,
                     const std::optional<Layout>& within = std::nullopt) const;
  // An exchange, or all-gather, of the pieces of `from` that lie within `within`. False where
  // nothing would move.
  bool add_exchange_within(Path& path, const Layout& from, const Layout& to,
                           std::vector<int> mesh_dims, const Layout& within) const;

 private:
  ReshardStep step(StepKind kind, const Layout& from, const Layout& to) const;

  std::vector<PinnedDim> only_;
  MeshDimSet pinned_;
  int64_t* visited_;
};

}  // namespace dtensor::internal
