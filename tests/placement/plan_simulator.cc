#include "dtensor/tests/placement/plan_simulator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace dtensor::test {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

size_t position(const Box& box, const Shape& index) {
  int64_t at = 0;
  for (int d = 0; d < index.ndim(); ++d) {
    require(index[d] >= box.offset[d] && index[d] < box.offset[d] + box.size[d], "outside a box");
    at = at * box.size[d] + index[d] - box.offset[d];
  }
  return static_cast<size_t>(at);
}

bool holds(const Box& box, const Shape& index) {
  for (int d = 0; d < index.ndim(); ++d) {
    if (index[d] < box.offset[d] || index[d] >= box.offset[d] + box.size[d]) return false;
  }
  return true;
}

int64_t combine(PartialOp op, int64_t a, int64_t b) {
  switch (op) {
    case PartialOp::kSum:
      return a + b;
    case PartialOp::kMin:
      return std::min(a, b);
    case PartialOp::kMax:
      return std::max(a, b);
    case PartialOp::kProd:
      break;
  }
  return a * b;
}

int64_t identity(PartialOp op) {
  constexpr int64_t kFar = int64_t{1} << 40;
  if (op == PartialOp::kMin) return kFar;
  if (op == PartialOp::kMax) return -kFar;
  return op == PartialOp::kProd ? 1 : 0;
}

bool same_mesh(const Layout& from, const Layout& to) { return from.mesh() == to.mesh(); }
// Between two meshes all Partial mesh dims are resolved and made.
bool new_partial(const Layout& from, const Layout& to, int m) {
  return to.placement(m).is_partial() && !(same_mesh(from, to) && from.placement(m).is_partial());
}
bool resolves(const Layout& from, const Layout& to, int m) {
  return from.placement(m).is_partial() && !(same_mesh(from, to) && to.placement(m).is_partial());
}
bool is_from_cut(const Layout& from, const Layout& to, int m) {
  return same_mesh(from, to) && from.placement(m).is_shard();
}
// Is a mesh dim's value wanted at coordinate 0 only?
bool is_kept_once(const Layout& from, const Layout& to, int m) {
  const PartialOp op = to.placement(m).op();
  return new_partial(from, to, m) && !is_from_cut(from, to, m) &&
         (op == PartialOp::kSum || op == PartialOp::kProd);
}

// A small number that depends on the element and on the coordinates of Partial mesh dims.
int64_t term(const Layout& layout, uint64_t seed, const Shape& index, const Coordinate& at) {
  uint64_t h = seed * 0x9e3779b97f4a7c15U + 1;
  const auto mix = [&](int64_t v) {
    h = (h ^ static_cast<uint64_t>(v + 77)) * 0xbf58476d1ce4e5b9U;
  };
  for (const int64_t i : index) mix(i);
  for (int m = 0; m < at.ndim; ++m) mix(layout.placement(m).is_partial() ? at[m] : -1);
  h ^= h >> 31;
  const bool product =
      layout.spec().has_partial() && layout.spec().partial_op() == PartialOp::kProd;
  return product ? static_cast<int64_t>(h % 3) + 1 : static_cast<int64_t>(h % 2001) - 1000;
}

// All coordinates that differ from `at` only on mesh dims for which `varies`.
std::vector<Coordinate> vary(const MeshLayout& mesh, const Coordinate& at,
                             const std::function<bool(int)>& varies) {
  std::vector<Coordinate> all;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate other = mesh.coordinate_at(i);
    bool same = true;
    for (int m = 0; m < mesh.ndim(); ++m) same &= varies(m) || other[m] == at[m];
    if (same) all.push_back(other);
  }
  return all;
}

using Written = std::vector<std::optional<int64_t>>;

void write(Written& out, const Box& want, const Box& piece, const Box& have,
           const std::vector<int64_t>& in) {
  for_each_index(piece, [&](const Shape& i) {
    auto& slot = out[position(want, i)];
    require(!slot.has_value(), "an element is written twice");
    slot = in[position(have, i)];
  });
}

struct Runner {
  const ReshardStep& step;
  const Locals& in;
  std::map<int, RankStep> ranks = {};
  int64_t moved = 0;

  // Empty boxes may stand anywhere.
  static bool same(const Box& a, const Box& b) { return a == b || (a.empty() && b.empty()); }

  std::vector<int64_t> run_moves(int rank) {
    const RankStep& me = ranks.at(rank);
    if (!me.holds_after) {
      require(me.receive.empty() && me.keep.empty() && !me.fill_identity, "work for nothing");
      return {};
    }
    Written out(static_cast<size_t>(me.want.numel()));
    for (const Box& box : me.keep) write(out, me.want, box, me.have, in.at(rank));
    for (const RankPiece& piece : me.receive) {
      const RankStep& peer = ranks.at(piece.rank);
      require(peer.me == piece.peer && piece.rank != rank, "a peer that is another");
      require(std::ranges::count(peer.send, RankPiece{me.me, piece.box, rank}) == 1,
              "a receive without its send");
      const bool whole = step.kind == StepKind::kAllGather || step.kind == StepKind::kBroadcast;
      require(!whole || piece.box == peer.have, "an all-gather of less than all");
      require(step.kind != StepKind::kBroadcast || (piece.peer == me.root && me.keep.empty()),
              "a broadcast of two ranks");
      write(out, me.want, piece.box, peer.have, in.at(piece.rank));
      moved += piece.box.numel();
    }
    require(!me.fill_identity || step.op.has_value(), "a fill without op");
    std::vector<int64_t> result;
    for (const auto& value : out) {
      require(value || me.fill_identity, "an element is not written");
      result.push_back(value ? *value : identity(*step.op));
    }
    return result;
  }

  void check_sends(int rank) const {
    const RankStep& me = ranks.at(rank);
    for (const RankPiece& piece : me.send) {
      require(
          std::ranges::count(ranks.at(piece.rank).receive, RankPiece{me.me, piece.box, rank}) == 1,
          "a send without its receive");
    }
    if (step.kind == StepKind::kAllGather && !me.have.empty()) {
      require(me.send.size() + 1 == group_of(step, rank).size(), "an all-gather that skips a rank");
    }
  }

  std::vector<int64_t> run_reduction(int rank) {
    const RankStep& me = ranks.at(rank);
    const std::vector<int> group = group_of(step, rank);
    const bool scatter = step.kind == StepKind::kReduceScatter;
    require(step.op.has_value() && me.keep.empty() && me.receive.empty(), "a reduction with keeps");
    require(scatter ? me.send.size() == group.size() : same(me.have, me.want) && me.send.empty(),
            "a reduction's boxes");
    std::vector<int64_t> result(static_cast<size_t>(me.want.numel()));
    for (size_t p = 0; p < group.size(); ++p) {
      const RankStep& peer = ranks.at(group[p]);
      require(peer.have == me.have, "terms of different boxes");
      require(!scatter || peer.send[static_cast<size_t>(me.me)] == RankPiece{me.me, me.want, rank},
              "a reduce-scatter of another box");
      for_each_index(me.want, [&](const Shape& i) {
        auto& sum = result[position(me.want, i)];
        const int64_t value = in.at(group[p])[position(peer.have, i)];
        sum = p == 0 ? value : combine(*step.op, sum, value);
      });
    }
    const auto n = static_cast<int64_t>(group.size());
    const int64_t size = me.want.numel();
    if (scatter) moved += (n - 1) * size;
    if (!scatter && me.me == 0) moved += 2 * (n - 1) * size;
    return result;
  }
};

Locals run_step(const ReshardStep& step, const Locals& in, const std::vector<int>& all_ranks) {
  Runner runner{step, in};
  int64_t sent = 0;
  int64_t received = 0;
  for (const int rank : all_ranks) {
    const RankStep& me = runner.ranks[rank] = rank_step(step, rank);
    const std::vector<int> group = group_of(step, rank);
    require(me.takes_part() ? group.at(static_cast<size_t>(me.me)) == rank : group.empty(),
            "this rank is not itself in its group");
    const auto before = box_before(step, rank);
    const auto after = box_after(step, rank);
    require(before.has_value() == me.holds_before && (!before || *before == me.have) &&
                after.has_value() == me.holds_after && (!after || *after == me.want),
            "boxes of a step");
    require(!me.holds_before || static_cast<int64_t>(in.at(rank).size()) == me.have.numel(),
            "a rank does not hold what a step takes");
    sent += traffic(step, rank).sent;
    received += dtensor::received(step, rank);
  }
  Locals out;
  for (const int rank : all_ranks) {
    const RankStep& me = runner.ranks.at(rank);
    if (!me.takes_part()) continue;
    const bool reduces = step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllReduce;
    if (!reduces) runner.check_sends(rank);
    auto result = reduces ? runner.run_reduction(rank) : runner.run_moves(rank);
    if (me.holds_after) out[rank] = std::move(result);
  }
  require(runner.moved == step.payload,
          "payload " + std::to_string(step.payload) + ", moved " + std::to_string(runner.moved));
  require(sent == step.payload && received == step.payload, "traffic is not the payload");
  require((step.kind == StepKind::kLocal) == (step.payload == 0), "an empty collective");
  return out;
}

}  // namespace

void for_each_index(const Box& box, const std::function<void(const Shape&)>& f) {
  if (box.empty()) return;
  Shape index = box.offset;
  while (true) {
    f(index);
    int d = index.ndim() - 1;
    while (d >= 0 && ++index[d] == box.offset[d] + box.size[d]) {
      index[d] = box.offset[d];
      --d;
    }
    if (d < 0) return;
  }
}

Locals make_locals(const Layout& layout, uint64_t seed) {
  Locals all;
  for (const int rank : layout.mesh().ranks()) {
    const Coordinate at = *layout.mesh().coordinate_of(rank);
    auto& local = all[rank];
    for_each_index(layout.box(at),
                   [&](const Shape& index) { local.push_back(term(layout, seed, index, at)); });
  }
  return all;
}

Locals run(const ReshardPlan& plan, const Locals& locals) {
  const std::vector<int> ranks = plan.ranks();
  // A rank's tensor is what the next step takes it for.
  for (const int rank : ranks) {
    std::optional<Box> box;
    if (plan.from().mesh().contains(rank)) box = plan.from().box_of(rank);
    for (const ReshardStep& step : plan.steps()) {
      if (const auto before = box_before(step, rank)) {
        require(box && Runner::same(*box, *before), "steps that do not follow");
      }
      // What a rank holds that is on the mesh of a step to come stays until then.
      const bool waits = !step.from.mesh().contains(rank) && !step.to.mesh().contains(rank);
      if (!waits) box = box_after(step, rank);
    }
    require(plan.to().mesh().contains(rank) == box.has_value() &&
                (!box || Runner::same(plan.to().box_of(rank), *box)),
            "steps that do not end");
  }
  Locals now = locals;
  for (const ReshardStep& step : plan.steps()) now = run_step(step, now, ranks);
  return now;
}

namespace {

// What one rank has of an element after all, beside the reduction over the new Partial mesh dims.
std::string check_kept(const Layout& from, const Layout& to, const Coordinate& at, int64_t value,
                       int64_t have) {
  bool wants = true;
  bool whole = true;
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    if (to.mesh().size(m) == 1) continue;
    if (is_kept_once(from, to, m) && at[m] != 0) wants = false;
    if (to.placement(m).is_partial() && (!new_partial(from, to, m) || is_from_cut(from, to, m))) {
      whole = false;
    }
  }
  if (!wants && have != identity(to.spec().partial_op())) return "no identity";
  if (wants && whole && have != value) return "another value";
  return {};
}

}  // namespace

namespace {

// Do the ranks of both meshes add up all their terms, before as after? Then these may stay.
bool all_are_terms(const Layout& from, const Layout& to) {
  if (same_mesh(from, to)) return false;
  for (const Layout* layout : {&from, &to}) {
    const MeshLayout& mesh = layout->mesh();
    if (!layout->spec().has_partial()) return false;
    for (int m = 0; m < mesh.ndim(); ++m) {
      if (mesh.size(m) > 1 && !layout->placement(m).is_partial()) return false;
    }
    for (const int rank : mesh.ranks()) {
      if (!from.mesh().contains(rank) || !to.mesh().contains(rank)) return false;
    }
  }
  return true;
}

}  // namespace

std::string compare(const Layout& from, const Layout& to, uint64_t seed, const Locals& got) {
  const MeshLayout& mesh = to.mesh();
  if (got.size() != mesh.ranks().size()) return "other ranks hold the result";
  for (const int rank : mesh.ranks()) {
    const Coordinate at = *mesh.coordinate_of(rank);
    const Box box = to.box(at);
    if (!got.contains(rank)) return "a rank holds nothing";
    if (static_cast<int64_t>(got.at(rank).size()) != box.numel()) return "size";
    // Over mesh dims that became Partial the terms together are the value.
    const auto terms = vary(mesh, at, [&](int m) { return new_partial(from, to, m); });
    Coordinate old_at = at;
    if (!same_mesh(from, to)) old_at = from.mesh().coordinate_at(0);
    const auto olds = vary(from.mesh(), old_at, [&](int m) { return resolves(from, to, m); });
    std::string wrong;
    for_each_index(box, [&](const Shape& index) {
      std::optional<int64_t> want;
      for (const Coordinate& old : olds) {
        const int64_t value = term(from, seed, index, old);
        want = want ? combine(from.spec().partial_op(), *want, value) : value;
      }
      std::optional<int64_t> have;
      for (const Coordinate& one : terms) {
        const int64_t value = got.at(mesh.rank_at(one))[position(to.box(one), index)];
        have = have ? combine(to.spec().partial_op(), *have, value) : value;
      }
      std::string why;
      if (have != want) why = "not " + std::to_string(*want);
      if (why.empty() && !all_are_terms(from, to)) {
        why = check_kept(from, to, at, *want, got.at(rank)[position(box, index)]);
      }
      if (!why.empty()) {
        wrong = "element " + to_string(index) + " of rank " + std::to_string(rank) + " is " +
                std::to_string(*have) + ", " + why;
      }
    });
    if (!wrong.empty()) return wrong;
  }
  return {};
}

namespace {

int64_t least_on_one_mesh(const Layout& from, const Layout& to) {
  const MeshLayout& mesh = from.mesh();
  int64_t n = 1;
  for (int m = 0; m < mesh.ndim(); ++m) n *= resolves(from, to, m) ? mesh.size(m) : 1;
  int64_t all = 0;
  for_each_index({Shape::filled(from.ndim(), 0), from.shape()}, [&](const Shape& index) {
    // Ranks that reduce together or of which, in the end, one has the element: by the rank at
    // coordinate 0. Does one hold it, and how many of the parts of a reduction want it?
    // Mesh dims that stay R or P are left alone: each of their coordinates does all by itself.
    std::map<int, std::map<int, std::pair<bool, int64_t>>> apart;
    for (int i = 0; i < mesh.size(); ++i) {
      const Coordinate at = mesh.coordinate_at(i);
      Coordinate first = at;
      Coordinate alone = at;
      bool wants = true;
      for (int m = 0; m < mesh.ndim(); ++m) {
        if (from.placement(m) != to.placement(m) || from.placement(m).is_shard()) alone[m] = 0;
        const bool shared = new_partial(from, to, m) && is_from_cut(from, to, m);
        if (resolves(from, to, m) || shared) first[m] = 0;
        if ((shared || is_kept_once(from, to, m)) && at[m] != 0) wants = false;
      }
      auto& group = apart[mesh.rank_at(alone)][mesh.rank_at(first)];
      group.first |= holds(from.box(at), index);
      group.second += wants && holds(to.box(at), index) ? 1 : 0;
    }
    for (const auto& [one, groups] : apart) {
      int64_t outside = 0;
      bool inside = false;
      for (const auto& [key, group] : groups) {
        const auto& [has, wanted] = group;
        if (has && wanted > 0 && n > 1) all += n - 1 + wanted - 1;
        inside |= has && wanted > 0;
        if (!has) outside += wanted;
      }
      all += outside + (outside > 0 && !inside ? n - 1 : 0);
    }
  });
  return all;
}

int64_t least_between_meshes(const Layout& from, const Layout& to) {
  int64_t n = 1;
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    n *= from.placement(m).is_partial() ? from.mesh().size(m) : 1;
  }
  int64_t all = 0;
  for_each_index({Shape::filled(from.ndim(), 0), from.shape()}, [&](const Shape& index) {
    int64_t wanted = 0;
    int64_t held = 0;
    for (const int rank : to.mesh().ranks()) {
      const Coordinate at = *to.mesh().coordinate_of(rank);
      bool wants = holds(to.box(at), index);
      for (int m = 0; m < to.mesh().ndim(); ++m) {
        if (is_kept_once(from, to, m) && at[m] != 0) wants = false;
      }
      if (!wants) continue;
      ++wanted;
      held += from.mesh().contains(rank) && holds(from.box_of(rank), index) ? 1 : 0;
    }
    if (wanted == 0) return;
    all += n == 1 ? wanted - held : n - 1 + wanted - std::min<int64_t>(held, 1);
  });
  return all;
}

}  // namespace

int64_t least_by_counting(const Layout& from, const Layout& to) {
  if (all_are_terms(from, to)) return 0;
  return same_mesh(from, to) ? least_on_one_mesh(from, to) : least_between_meshes(from, to);
}

std::string check_plan(const Layout& from, const Layout& to, uint64_t seed) {
  const std::string what =
      to_string(from) + " -> " + to_string(to) + " " + to_string(from.shape()) + ": ";
  try {
    const ReshardPlan made = plan(from, to);
    const std::string wrong = compare(from, to, seed, run(made, make_locals(from, seed)));
    if (!wrong.empty()) return what + wrong;
    int64_t payload = 0;
    for (const ReshardStep& step : made.steps()) payload += step.payload;
    require(payload == made.payload(), "payload of the plan");
    int64_t most = 0;
    int64_t received = 0;
    for (const RankTraffic& rank : made.traffic()) {
      most = std::max(most, rank.received);
      received += rank.received;
    }
    require(most == made.most_received() && received == payload, "received");
    const int64_t least = least_by_counting(from, to);
    require(made.payload_minimum() == least, "minimum " + std::to_string(made.payload_minimum()) +
                                                 ", counted " + std::to_string(least));
    require(payload >= least,
            "payload " + std::to_string(payload) + " below the minimum " + std::to_string(least));
  } catch (const std::exception& e) {
    return what + e.what();
  }
  return {};
}

}  // namespace dtensor::test
