#include "dtensor/placement/reshard_step.h"

#include <array>

namespace dtensor {
namespace {

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
  int64_t size = 1;
  for (const int m : step.mesh_dims) size *= step.from.mesh().size(m);
  return size;
}

int index_in_group(const ReshardStep& step, const Coordinate& at) {
  int index = 0;
  for (const int m : step.mesh_dims) index = index * step.from.mesh().size(m) + at[m];
  return index;
}

// Sums and products: of R -> P only coordinate 0 keeps the value. Minima and maxima are not changed
// by a value that is there twice.
bool becomes_identity(const ReshardStep& step, const Coordinate& at) {
  if (!step.op || *step.op == PartialOp::kMin || *step.op == PartialOp::kMax) return false;
  for (int m = 0; m < at.ndim; ++m) {
    if (step.from.placement(m).is_replicate() && step.to.placement(m).is_partial() && at[m] != 0) {
      return true;
    }
  }
  return false;
}

void add_local(const ReshardStep& step, const Coordinate& at, RankStep& out) {
  const Box kept = intersect(out.have, out.want);
  if (!becomes_identity(step, at) && !kept.empty()) out.keep.push_back(kept);
  out.fill_identity = step.op && !out.want.empty() && (out.keep.empty() || !(kept == out.want));
}

void add_all_gather(const ReshardStep& step, const std::vector<Coordinate>& group, RankStep& out) {
  for (int peer = 0; peer < static_cast<int>(group.size()); ++peer) {
    const Box theirs = box_before(step, group[static_cast<size_t>(peer)]);
    if (peer == out.me) {
      if (!theirs.empty()) out.keep.push_back(theirs);
      continue;
    }
    if (!out.have.empty()) out.send.push_back({peer, out.have});
    if (!theirs.empty()) out.receive.push_back({peer, theirs});
  }
}

void add_exchange(const ReshardStep& step, const std::vector<Coordinate>& group, RankStep& out) {
  for (int peer = 0; peer < static_cast<int>(group.size()); ++peer) {
    const Coordinate& at = group[static_cast<size_t>(peer)];
    const Box to_them = intersect(out.have, box_after(step, at));
    if (peer == out.me) {
      if (!to_them.empty()) out.keep.push_back(to_them);
      continue;
    }
    if (!to_them.empty()) out.send.push_back({peer, to_them});
    const Box from_them = intersect(box_before(step, at), out.want);
    if (!from_them.empty()) out.receive.push_back({peer, from_them});
  }
}

}  // namespace

Box box_before(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind != StepKind::kReduceScatter;
  return clipped ? intersect(step.from.box(at), step.within->box(at)) : step.from.box(at);
}

Box box_after(const ReshardStep& step, const Coordinate& at) {
  const bool clipped = step.within && step.kind == StepKind::kReduceScatter;
  return clipped ? intersect(step.to.box(at), step.within->box(at)) : step.to.box(at);
}

std::string_view name_of(StepKind kind) {
  constexpr std::array<std::string_view, 6> kNames = {"local",      "all_gather", "reduce_scatter",
                                                      "all_reduce", "all_to_all", "exchange"};
  return kNames[static_cast<size_t>(kind)];
}

RankStep rank_step(const ReshardStep& step, const Coordinate& at) {
  RankStep out;
  out.group = step.from.mesh().group(at, step.mesh_dims);
  out.me = index_in_group(step, at);
  out.have = box_before(step, at);
  out.want = box_after(step, at);
  switch (step.kind) {
    case StepKind::kLocal:
      add_local(step, at, out);
      break;
    case StepKind::kAllGather:
      add_all_gather(step, members(step, at), out);
      break;
    case StepKind::kReduceScatter:
      for (const Coordinate& peer : members(step, at)) {
        out.send.push_back({static_cast<int>(out.send.size()), box_after(step, peer)});
      }
      break;
    case StepKind::kAllReduce:
      break;
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      add_exchange(step, members(step, at), out);
      break;
  }
  return out;
}

int64_t received(const ReshardStep& step, const Coordinate& at) {
  const Box want = box_after(step, at);
  const int64_t n = group_size(step);
  switch (step.kind) {
    case StepKind::kLocal:
      return 0;
    case StepKind::kReduceScatter:
      return (n - 1) * want.numel();
    case StepKind::kAllReduce: {
      // As a reduce-scatter of even parts and an all-gather of them: others' shares of the own
      // part, then the other parts.
      const int64_t own =
          cut({0, want.numel()}, index_in_group(step, at), static_cast<int>(n)).size();
      return (n - 1) * own + want.numel() - own;
    }
    case StepKind::kAllGather:
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      break;
  }
  return want.numel() - intersect(box_before(step, at), want).numel();
}

RankTraffic traffic(const ReshardStep& step, const Coordinate& at) {
  RankTraffic out;
  out.received = received(step, at);
  switch (step.kind) {
    case StepKind::kLocal:
      break;
    case StepKind::kAllReduce:
      out.sent = out.received;
      break;
    case StepKind::kAllGather:
      out.sent = (group_size(step) - 1) * box_before(step, at).numel();
      break;
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
    case StepKind::kExchange: {
      const RankStep mine = rank_step(step, at);
      for (const RankPiece& piece : mine.send) {
        if (piece.peer != mine.me) out.sent += piece.box.numel();
      }
    }
  }
  return out;
}

}  // namespace dtensor
