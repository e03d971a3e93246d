// ReshardStep: one collective between two layouts, or local work; RankStep: what one rank does in
// it. Both are pure and every rank computes the same.
//
// Most steps stay on one mesh: every group of `mesh_dims` makes the collective. A step from one
// mesh to another is one exchange (or broadcast) of all ranks in `ranks`; a rank may lie in one of
// the two meshes only, and then holds nothing before or after. Ranks are those of the root that the
// meshes share.
//
// What a rank holds after a step is what it holds before the next; of boxes without elements only
// that they are empty. Boxes are products of ranges and no element is held twice within a group, so
// that between two ranks of one mesh at most one box moves. A rank keeps what it has already. Where
// an element has replicas, the source on one mesh is the holder nearest to the receiver: the one
// whose coordinates are the receiver's on all mesh dims that do not cut the tensor differently.
// Between two meshes receiver number i takes from replica i modulo their number. Both spread the
// load evenly.

#pragma once

#include <cstdint>
#include <memory>
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
  kBroadcast,      // one rank of the group has it all, and all get it
};

std::string_view name_of(StepKind kind);  // "all_gather"

// A coordinate on one mesh dim.
struct PinnedDim {
  int mesh_dim = 0;
  int coordinate = 0;
  friend bool operator==(const PinnedDim&, const PinnedDim&) = default;
};

// One collective on every group of `mesh_dims` or on `ranks`, or local work.
struct ReshardStep {
  StepKind kind = StepKind::kLocal;
  std::vector<int> mesh_dims;  // the group: ranks that differ on these, in this order
  Layout from;
  Layout to;
  // Of a reduction, or of the identity that a local step fills in, or an exchange: one with an op
  // makes terms of S -> P, where a rank gets what the ranks at its coordinate on the new Partial
  // mesh dims hold of its box, and nothing of the rest.
  std::optional<PartialOp> op;
  int64_t payload = 0;  // elements sent, added over all ranks; an all-reduce of S elements
                        // on n ranks counts 2(n-1)S per group
  // Where a reduce-scatter's parts shall serve a later move, they are what of `to` lies within this
  // layout, and the move after it begins with what of its `from` does.
  std::optional<Layout> within = {};
  // Only ranks at these coordinates of `from`'s mesh hold something before, and of `to`'s after: a
  // mesh dim that becomes P(sum) or P(prod) in the end needs the value at coordinate 0 only, and of
  // replicas that are to be reduced for another mesh one is enough. On one mesh the two differ only
  // in the local step that fills in the identity, which brings the other ranks back; in all others
  // those take no part, and what they held is dropped.
  std::vector<PinnedDim> from_only = {};
  std::vector<PinnedDim> to_only = {};
  // The group of a step between two meshes, ascending; null on one mesh.
  std::shared_ptr<const std::vector<int>> ranks = {};

  bool is_between_meshes() const { return ranks != nullptr; }
};

// The ranks of the group that a rank is in, by group index; without any for a rank that takes no
// part.
std::vector<int> group_of(const ReshardStep& step, int rank);

// What a rank holds before and after a step; nullopt where it holds nothing (not even an empty
// box).
std::optional<Box> box_before(const ReshardStep& step, int rank);
std::optional<Box> box_after(const ReshardStep& step, int rank);

// A box in global indices that goes to or comes from a rank of the group.
struct RankPiece {
  int peer = 0;  // index in the group
  Box box;
  int rank = 0;  // the peer as a rank of the root
  friend bool operator==(const RankPiece&, const RankPiece&) = default;
};

struct RankStep {
  int me = -1;  // this rank's index in the group; -1: it takes no part
  bool holds_before = false;
  bool holds_after = false;
  Box have;  // what this rank holds before, where it does
  Box want;  // and after

  // By group index. Boxes are not empty, except in a reduce-scatter, and never this rank's own,
  // except there.
  //   all-gather           send: `have` to every other rank        receive: every other's `have`
  //   all-to-all, exchange send, receive: the boxes that move; between two meshes there may be
  //                        several of one peer, by offset
  //   broadcast            send: of the root, `have` to every other   receive: of the others
  //   reduce-scatter       send: one box for every rank of the group, this one's own included: what
  //                        that rank will own; what of `have` is in none is dropped. receive: none
  //   all-reduce, local    none; an all-reduce has have == want
  std::vector<RankPiece> send;
  std::vector<RankPiece> receive;
  // What this rank has already of `want`, as boxes that do not meet: one or none. None in
  // reductions.
  std::vector<Box> keep;
  int root = -1;  // of a broadcast: index in the group
  // Steps to P: what of `want` is neither in `keep` nor received is the identity of the step's op.
  // (R -> P at another coordinate than 0 keeps nothing; S -> P keeps its own part.)
  bool fill_identity = false;

  bool takes_part() const { return me >= 0; }
};

// What a rank does. Looks at the parts that meet this rank's, not at the mesh; `visited`, where
// given, is increased by their number.
RankStep rank_step(const ReshardStep& step, int rank, int64_t* visited = nullptr);

// Elements that a rank sends and receives. What a rank relays in a collective is not counted: a
// broadcast's root sends to all.
struct RankTraffic {
  int64_t sent = 0;
  int64_t received = 0;
  friend bool operator==(const RankTraffic&, const RankTraffic&) = default;
};
RankTraffic traffic(const ReshardStep& step, int rank);
int64_t received(const ReshardStep& step, int rank);  // the cheaper half of it

}  // namespace dtensor
