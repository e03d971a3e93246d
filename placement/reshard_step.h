// ReshardStep: one collective between two layouts of a mesh, or local work; RankStep: what one rank
// does in it. Both are pure and every rank computes the same.
//
// Boxes are products of ranges and within a group no element is held twice, so that between two
// ranks at most one box moves. A rank keeps what it has already. Where an element has replicas, the
// source is the holder nearest to the receiver: the one whose coordinates are the receiver's on all
// mesh dims that do not cut the tensor differently, which spreads the load evenly.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {

enum class StepKind : uint8_t {
  kLocal,          // slices, fills and keeps: no message
  kAllGather,      // every rank of the group gets the pieces of all
  kReduceScatter,  // P -> S over the group
  kAllReduce,      // P -> R over the group
  kAllToAll,       // S(i) -> S(j): pieces differ by receiver
  kExchange,       // any other set of box moves within the group
};

std::string_view name_of(StepKind kind);  // "all_gather"

// One collective on every group of `mesh_dims`, or local work.
struct ReshardStep {
  StepKind kind = StepKind::kLocal;
  std::vector<int> mesh_dims;  // the group: ranks that differ on these, in this order
  Layout from;
  Layout to;
  std::optional<PartialOp> op;  // of a reduction, or of the identity that a local step fills in
  int64_t payload = 0;          // elements sent, added over all ranks; an all-reduce of S elements
                                // on n ranks counts 2(n-1)S per group
  // Where a reduce-scatter's parts shall serve a later move, they are what of `to` lies within this
  // layout, and the move after it begins with what of its `from` does.
  std::optional<Layout> within = {};
};

// What the rank at a coordinate holds before and after a step.
Box box_before(const ReshardStep& step, const Coordinate& at);
Box box_after(const ReshardStep& step, const Coordinate& at);

// A box in global indices that goes to or comes from a rank of the group.
struct RankPiece {
  int peer = 0;  // index in the group
  Box box;
  friend bool operator==(const RankPiece&, const RankPiece&) = default;
};

struct RankStep {
  std::vector<int> group;  // ranks of the mesh's root, in the order of MeshLayout::group
  int me = 0;              // this rank's index in it
  Box have;                // what this rank holds before
  Box want;                // and after

  // By group index. Boxes are not empty, except in a reduce-scatter, and never this rank's own,
  // except there.
  //   all-gather           send: `have` to every other rank        receive: every other's `have`
  //   all-to-all, exchange send, receive: the boxes that move
  //   reduce-scatter       send: one box for every rank of the group, this one's own included: what
  //                        that rank will own; what of `have` is in none is dropped. receive: none
  //   all-reduce, local    none; an all-reduce has have == want
  std::vector<RankPiece> send;
  std::vector<RankPiece> receive;
  // What this rank has already of `want`: one box or none. None in reductions.
  std::vector<Box> keep;
  // Local steps to P: what of `want` is not in `keep` is the identity of the step's op.
  // (R -> P at another coordinate than 0 keeps nothing; S -> P keeps its own part.)
  bool fill_identity = false;
};

// What the rank at a coordinate does.
RankStep rank_step(const ReshardStep& step, const Coordinate& at);

// Elements that the rank at a coordinate sends and receives.
struct RankTraffic {
  int64_t sent = 0;
  int64_t received = 0;
  friend bool operator==(const RankTraffic&, const RankTraffic&) = default;
};
RankTraffic traffic(const ReshardStep& step, const Coordinate& at);
int64_t received(const ReshardStep& step, const Coordinate& at);  // the cheaper half of it

}  // namespace dtensor
