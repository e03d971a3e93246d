#include <algorithm>
#include <optional>
#include <vector>

#include "dtensor/placement/overlap.h"
#include "dtensor/placement/reshard_step.h"
#include "dtensor/placement/step_holders.h"

namespace dtensor {
namespace {

using internal::box_after_at;
using internal::holder_after;
using internal::holder_before;
using internal::index_in_group;

// The coordinates of a group, in its order.
std::vector<Coordinate> members(const ReshardStep& step, const Coordinate& of) {
  const MeshLayout& mesh = step.from.mesh();
  std::vector<Coordinate> all;
  Coordinate at = of;
  for (const int m : step.mesh_dims) at[m] = 0;
  while (true) {
    all.push_back(at);
    size_t i = step.mesh_dims.size();
    while (i > 0 && ++at[step.mesh_dims[i - 1]] == mesh.size(step.mesh_dims[i - 1])) {
      at[step.mesh_dims[--i]] = 0;
    }
    if (i == 0) return all;
  }
}

int index_among(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
}

void sort_by_peer(std::vector<RankPiece>& pieces) {
  std::ranges::sort(pieces, [](const RankPiece& a, const RankPiece& b) {
    if (a.peer != b.peer) return a.peer < b.peer;
    return std::ranges::lexicographical_compare(a.box.offset, b.box.offset);
  });
}

// One rank's part of a step on one mesh.
class OnOneMesh {
 public:
  OnOneMesh(const ReshardStep& step, const Coordinate& at, RankStep& out, int64_t* visited)
      : step_(step), at_(at), group_(MeshDimSet::of(step.mesh_dims)), out_(out), visited_(visited) {
    out.me = index_in_group(step, at);
  }

  void local() {
    if (out_.holds_before) {
      const Box kept = intersect(out_.have, out_.want);
      if (!kept.empty()) out_.keep.push_back(kept);
    }
    out_.fill_identity =
        step_.op && !out_.want.empty() && (out_.keep.empty() || !(out_.keep[0] == out_.want));
  }

  void all_gather() {
    if (!out_.have.empty()) {
      out_.keep.push_back(out_.have);
      send_to_all();
    }
    receive();
  }

  void broadcast(int root) {
    out_.root = root;
    if (out_.me == root) {
      if (!out_.have.empty()) {
        out_.keep.push_back(out_.have);
        send_to_all();
      }
      return;
    }
    receive();
  }

  void reduce_scatter() {
    for (const Coordinate& peer : members(step_, at_))
      add(out_.send, peer, box_after_at(step_, peer));
  }

  void exchange() {
    const Box kept = intersect(out_.have, out_.want);
    if (!kept.empty()) out_.keep.push_back(kept);
    for (const Held& held : held_of(step_.to, out_.have, at_, group_, visited_)) {
      if (!(held.at == at_)) add(out_.send, held.at, held.box);
    }
    sort_by_peer(out_.send);
    receive();
    int64_t lacking = out_.want.numel() - kept.numel();
    for (const RankPiece& piece : out_.receive) lacking -= piece.box.numel();
    out_.fill_identity = step_.op && lacking > 0;
  }

 private:
  void add(std::vector<RankPiece>& list, const Coordinate& peer, const Box& box) const {
    list.push_back({index_in_group(step_, peer), box, step_.from.mesh().rank_at(peer)});
  }

  void send_to_all() {
    for (const Coordinate& peer : members(step_, at_)) {
      if (!(peer == at_)) add(out_.send, peer, out_.have);
    }
  }

  // The boxes of `want` that others have. Where these are clipped, it is the clip that is cut.
  void receive() {
    const Layout& cut = step_.within ? *step_.within : step_.from;
    for (const Held& held : held_of(cut, out_.want, at_, group_, visited_)) {
      if (held.at == at_) continue;
      const Box box = intersect(held.box, step_.from.box(held.at));
      if (!box.empty()) add(out_.receive, held.at, box);
    }
    sort_by_peer(out_.receive);
  }

  const ReshardStep& step_;
  const Coordinate& at_;
  MeshDimSet group_;
  RankStep& out_;
  int64_t* visited_;
};

// Numbers the coordinates on some mesh dims, row-major; the others are pinned.
class Numbering {
 public:
  // All dims but those of `without` and the pinned ones.
  Numbering(const MeshLayout& mesh, MeshDimSet without, const std::vector<PinnedDim>& pinned)
      : mesh_(mesh) {
    first_.ndim = mesh.ndim();
    for (const PinnedDim& p : pinned) {
      without.add(p.mesh_dim);
      first_[p.mesh_dim] = p.coordinate;
    }
    for (int m = 0; m < mesh.ndim(); ++m) {
      if (without.contains(m)) continue;
      dims_.push_back(m);
      count_ *= mesh.size(m);
    }
  }
  int count() const { return count_; }
  MeshDimSet dims() const { return MeshDimSet::of(dims_); }
  // 0 on the dims that are numbered, and as pinned.
  const Coordinate& first() const { return first_; }
  int number_of(const Coordinate& at) const {
    int number = 0;
    for (const int m : dims_) number = number * mesh_.size(m) + at[m];
    return number;
  }
  Coordinate with_number(Coordinate at, int number) const {
    for (size_t i = dims_.size(); i-- > 0;) {
      at[dims_[i]] = number % mesh_.size(dims_[i]);
      number /= mesh_.size(dims_[i]);
    }
    return at;
  }

 private:
  const MeshLayout& mesh_;
  std::vector<int> dims_;
  Coordinate first_;
  int count_ = 1;
};

// One rank's part of an exchange from one mesh to another.
class BetweenMeshes {
 public:
  BetweenMeshes(const ReshardStep& step, int rank, RankStep& out, int64_t* visited)
      : step_(step),
        rank_(rank),
        cutting_(MeshDimSet::cutting(step.from)),
        replicas_(step.from.mesh(), cutting_, step.from_only),
        receivers_(step.to.mesh(), {}, step.to_only),
        out_(out),
        visited_(visited) {
    out.me = index_among(*step.ranks, rank);
  }

  void exchange() {
    if (out_.holds_after) receive();
    if (out_.holds_before) send();
    sort_by_peer(out_.send);
    sort_by_peer(out_.receive);
  }

  void broadcast() {
    const int root = step_.from.mesh().ranks().front();
    out_.root = index_among(*step_.ranks, root);
    if (rank_ != root) {
      out_.receive.push_back({out_.root, out_.want, root});
      return;
    }
    if (out_.holds_after) out_.keep.push_back(out_.want);
    for (int peer = 0; peer < static_cast<int>(step_.ranks->size()); ++peer) {
      if (peer == out_.root) continue;
      out_.send.push_back({peer, out_.have, (*step_.ranks)[static_cast<size_t>(peer)]});
    }
  }

 private:
  bool same_tile(const Coordinate& a, const Coordinate& b) const {
    for (int m = 0; m < a.ndim; ++m) {
      if (cutting_.contains(m) && a[m] != b[m]) return false;
    }
    return true;
  }

  void add(std::vector<RankPiece>& list, int rank, const Box& box) const {
    list.push_back({index_among(*step_.ranks, rank), box, rank});
  }

  void receive() {
    const auto mine = holder_before(step_, rank_);
    const int number = receivers_.number_of(*step_.to.mesh().coordinate_of(rank_));
    for (const Held& held : held_of(step_.from, out_.want, replicas_.first(), cutting_, visited_)) {
      if (mine && same_tile(held.at, *mine)) {
        out_.keep.push_back(held.box);
        continue;
      }
      const Coordinate source = replicas_.with_number(held.at, number % replicas_.count());
      add(out_.receive, step_.from.mesh().rank_at(source), held.box);
    }
  }

  void send() {
    const Coordinate mine = *step_.from.mesh().coordinate_of(rank_);
    for (const Held& held :
         held_of(step_.to, out_.have, receivers_.first(), receivers_.dims(), visited_)) {
      const int rank = step_.to.mesh().rank_at(held.at);
      const int chosen = receivers_.number_of(held.at) % replicas_.count();
      if (rank == rank_ || chosen != replicas_.number_of(mine)) continue;
      const auto theirs = holder_before(step_, rank);
      if (!theirs || !same_tile(*theirs, mine)) add(out_.send, rank, held.box);
    }
  }

  const ReshardStep& step_;
  int rank_;
  MeshDimSet cutting_;  // the mesh dims that cut `from`
  Numbering replicas_;
  Numbering receivers_;
  RankStep& out_;
  int64_t* visited_;
};

// The member of a group that holds something, where one alone does: coordinate 0, or the first of
// weight above 0.
int root_of(const ReshardStep& step) {
  Coordinate at;
  at.ndim = step.from.mesh().ndim();
  for (const int m : step.mesh_dims) {
    const auto weights = step.from.mesh().weights(m);
    while (!weights.empty() && weights[static_cast<size_t>(at[m])] == 0) ++at[m];
  }
  return index_in_group(step, at);
}

}  // namespace

RankStep rank_step(const ReshardStep& step, int rank, int64_t* visited) {
  RankStep out;
  if (auto box = box_before(step, rank)) {
    out.holds_before = true;
    out.have = *box;
  }
  if (auto box = box_after(step, rank)) {
    out.holds_after = true;
    out.want = *box;
  }
  if (step.is_between_meshes()) {
    if (!std::ranges::binary_search(*step.ranks, rank)) return out;
    BetweenMeshes part(step, rank, out, visited);
    step.kind == StepKind::kBroadcast ? part.broadcast() : part.exchange();
    return out;
  }
  const auto at = holder_after(step, rank);
  if (!at) return out;
  OnOneMesh part(step, *at, out, visited);
  switch (step.kind) {
    case StepKind::kLocal:
      part.local();
      break;
    case StepKind::kAllGather:
      part.all_gather();
      break;
    case StepKind::kReduceScatter:
      part.reduce_scatter();
      break;
    case StepKind::kAllReduce:
      break;
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      part.exchange();
      break;
    case StepKind::kBroadcast:
      part.broadcast(root_of(step));
      break;
  }
  return out;
}

}  // namespace dtensor
