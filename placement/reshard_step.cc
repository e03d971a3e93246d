#include "dtensor/placement/reshard_step.h"

#include <algorithm>
#include <array>

#include "dtensor/placement/overlap.h"

namespace dtensor {
namespace {

bool is_at(const std::vector<PinnedDim>& pinned, const std::optional<Coordinate>& at) {
  return at && std::ranges::all_of(pinned,
                                   [&](PinnedDim p) { return (*at)[p.mesh_dim] == p.coordinate; });
}

std::optional<Coordinate> holder_before(const ReshardStep& step, int rank) {
  auto at = step.from.mesh().coordinate_of(rank);
  if (!is_at(step.from_only, at)) at.reset();
  return at;
}

std::optional<Coordinate> holder_after(const ReshardStep& step, int rank) {
  auto at = step.to.mesh().coordinate_of(rank);
  if (!is_at(step.to_only, at)) at.reset();
  return at;
}

Box box_before_at(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind != StepKind::kReduceScatter;
  return clipped ? intersect(step.from.box(at), step.within->box(at)) : step.from.box(at);
}

Box box_after_at(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind == StepKind::kReduceScatter;
  return clipped ? intersect(step.to.box(at), step.within->box(at)) : step.to.box(at);
}

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

int64_t group_size(const ReshardStep& step) {
  if (step.is_between_meshes()) return static_cast<int64_t>(step.ranks->size());
  int64_t size = 1;
  for (const int m : step.mesh_dims) size *= step.from.mesh().size(m);
  return size;
}

int index_in_group(const ReshardStep& step, const Coordinate& at) {
  int index = 0;
  for (const int m : step.mesh_dims) index = index * step.from.mesh().size(m) + at[m];
  return index;
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

std::optional<Box> box_before(const ReshardStep& step, int rank) {
  const auto at = holder_before(step, rank);
  if (!at) return std::nullopt;
  return box_before_at(step, *at);
}

std::optional<Box> box_after(const ReshardStep& step, int rank) {
  const auto at = holder_after(step, rank);
  if (!at) return std::nullopt;
  return box_after_at(step, *at);
}

std::string_view name_of(StepKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "local", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange", "broadcast"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<int> group_of(const ReshardStep& step, int rank) {
  if (step.is_between_meshes()) {
    const bool takes_part = std::ranges::binary_search(*step.ranks, rank);
    return takes_part ? *step.ranks : std::vector<int>{};
  }
  const auto at = holder_after(step, rank);
  return at ? step.from.mesh().group(*at, step.mesh_dims) : std::vector<int>{};
}

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

int64_t received(const ReshardStep& step, int rank) {
  const auto box = box_after(step, rank);
  if (!box || step.kind == StepKind::kLocal) return 0;
  const int64_t want = box->numel();
  const int64_t n = group_size(step);
  if (step.kind == StepKind::kReduceScatter) return (n - 1) * want;
  if (step.kind == StepKind::kAllReduce) {
    // As a reduce-scatter of even parts and an all-gather of them: others' shares of the own part,
    // then the other parts.
    const int index = index_in_group(step, *step.from.mesh().coordinate_of(rank));
    const int64_t own = cut({0, want}, index, static_cast<int>(n)).size();
    return (n - 1) * own + want - own;
  }
  const auto have = box_before(step, rank);
  return have ? want - intersect(*have, *box).numel() : want;
}

RankTraffic traffic(const ReshardStep& step, int rank) {
  RankTraffic out;
  out.received = received(step, rank);
  if (step.kind == StepKind::kLocal) return out;
  if (step.kind == StepKind::kAllReduce) {
    out.sent = out.received;
    return out;
  }
  if (step.kind == StepKind::kAllGather) {
    const auto have = box_before(step, rank);
    out.sent = have ? (group_size(step) - 1) * have->numel() : 0;
    return out;
  }
  const RankStep mine = rank_step(step, rank);
  for (const RankPiece& piece : mine.send) {
    if (piece.peer != mine.me) out.sent += piece.box.numel();
  }
  return out;
}

}  // namespace dtensor
