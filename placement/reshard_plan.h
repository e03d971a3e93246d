// ReshardPlan: how a tensor goes from one layout to another on the same mesh: a list of steps,
// each between two layouts. The plan is what is costed and what is run. It is pure, and the same
// on every rank.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/tiling.h"

namespace dtensor {

enum class StepKind : uint8_t {
  kLocal,          // slices, fills and keeps: no message
  kAllGather,      // every rank of the group gets the pieces of all
  kReduceScatter,  // P -> S over the group
  kAllReduce,      // P -> R over the group
  kAllToAll,       // pieces differ by receiver, all within the group
  kExchange,       // any set of box moves within the group
};

std::string_view name_of(StepKind kind);  // "all_gather"

// One collective on every group of `mesh_dims`, or local work.
struct ReshardStep {
  StepKind kind = StepKind::kLocal;
  std::vector<int> mesh_dims;  // the group: ranks that differ on these, in this order
  Layout from;
  Layout to;
  std::optional<PartialOp> op;  // of a reduction
  int64_t payload = 0;          // elements sent, added over all ranks; an all-reduce of S elements
                                // on n ranks counts 2(n-1)S per group
};

// What one rank does in a step. Boxes are in global indices. Pieces are listed in the order of
// the group's ranks, and by offset within a peer.
struct RankPiece {
  int peer = 0;  // index in the group
  Box box;
};
struct RankStep {
  std::vector<int> group;          // ranks of the mesh's root
  int me = 0;                      // this rank's index in it
  Box have;                        // what this rank holds before
  Box want;                        // and after
  std::vector<RankPiece> send;     // for reductions: the part of `have` that each peer will own
  std::vector<RankPiece> receive;  // pieces from other ranks; not of reductions
  std::vector<Box> keep;           // pieces that this rank has already
  bool fill_identity = false;      // R -> P: this rank holds the op's identity instead of the value
};

class ReshardPlan {
 public:
  const Layout& from() const { return from_; }
  const Layout& to() const { return to_; }
  const std::vector<ReshardStep>& steps() const { return steps_; }
  // Elements sent, over all ranks: of the plan, and the least that any plan needs.
  int64_t payload() const { return payload_; }
  int64_t payload_minimum() const { return payload_minimum_; }
  // Elements received by the rank that receives most.
  int64_t most_received() const { return most_received_; }
  bool is_free() const { return payload_ == 0; }
  // The moves of boxes from owner to receiver in all steps but reductions, sorted.
  std::vector<BoxMove> messages() const;

  // The part of step `index` that the rank at a coordinate does.
  RankStep rank_step(int index, const Coordinate& at) const;

 private:
  friend ReshardPlan plan(const Layout& from, const Layout& to);
  Layout from_;
  Layout to_;
  std::vector<ReshardStep> steps_;
  int64_t payload_ = 0;
  int64_t payload_minimum_ = 0;
  int64_t most_received_ = 0;
};

// Every pair of layouts of one shape on one mesh: any of R, S, P, uneven, empty, several mesh dims
// on one tensor dim. Free (no steps but local ones) exactly where no rank lacks anything.
// PlacementError: P(a) -> P(b), two ops at once, two meshes, two shapes.
ReshardPlan plan(const Layout& from, const Layout& to);

}  // namespace dtensor
