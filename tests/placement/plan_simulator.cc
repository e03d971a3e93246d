#include "dtensor/tests/placement/plan_simulator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "dtensor/placement/least_payload.h"

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

bool new_partial(const Layout& from, const Layout& to, int m) {
  return to.placement(m).is_partial() && !from.placement(m).is_partial();
}
bool resolves(const Layout& from, const Layout& to, int m) {
  return from.placement(m).is_partial() && !to.placement(m).is_partial();
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

size_t index_of(const MeshLayout& mesh, const Coordinate& at) {
  return static_cast<size_t>(std::ranges::find(mesh.ranks(), mesh.rank_at(at)) -
                             mesh.ranks().begin());
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
  std::vector<RankStep> ranks;  // by mesh index
  int64_t moved = 0;

  size_t mesh_index(const RankStep& of, int peer) const {
    const auto& all = step.from.mesh().ranks();
    return static_cast<size_t>(std::ranges::find(all, of.group.at(static_cast<size_t>(peer))) -
                               all.begin());
  }

  std::vector<int64_t> run_moves(size_t r) {
    const RankStep& me = ranks[r];
    Written out(static_cast<size_t>(me.want.numel()));
    for (const Box& box : me.keep) write(out, me.want, box, me.have, in[r]);
    for (const RankPiece& piece : me.receive) {
      const size_t p = mesh_index(me, piece.peer);
      const auto sent = std::ranges::count(ranks[p].send, RankPiece{me.me, piece.box});
      require(p != r && sent == 1, "a receive without its send");
      const bool gather = step.kind == StepKind::kAllGather;
      require(!gather || piece.box == ranks[p].have, "an all-gather of less than all");
      write(out, me.want, piece.box, ranks[p].have, in[p]);
      moved += piece.box.numel();
    }
    for (const RankPiece& piece : me.send) {
      const RankStep& peer = ranks[mesh_index(me, piece.peer)];
      require(std::ranges::count(peer.receive, RankPiece{me.me, piece.box}) == 1,
              "a send without its receive");
    }
    if (step.kind == StepKind::kAllGather && !me.have.empty()) {
      require(me.send.size() + 1 == me.group.size(), "an all-gather that skips a rank");
    }
    require(!me.fill_identity || step.op.has_value(), "a fill without op");
    std::vector<int64_t> result;
    for (const auto& value : out) {
      require(value || me.fill_identity, "an element is not written");
      result.push_back(value ? *value : identity(*step.op));
    }
    return result;
  }

  std::vector<int64_t> run_reduction(size_t r) {
    const RankStep& me = ranks[r];
    const bool scatter = step.kind == StepKind::kReduceScatter;
    require(step.op.has_value() && me.keep.empty() && me.receive.empty(), "a reduction with keeps");
    // Empty boxes may stand anywhere.
    const bool stays = me.have == me.want || (me.have.empty() && me.have.size == me.want.size);
    require(scatter ? me.send.size() == me.group.size() : stays && me.send.empty(),
            "a reduction's boxes");
    std::vector<int64_t> result(static_cast<size_t>(me.want.numel()));
    for (size_t p = 0; p < me.group.size(); ++p) {
      const size_t peer = mesh_index(me, static_cast<int>(p));
      require(ranks[peer].have == me.have, "terms of different boxes");
      require(!scatter || ranks[peer].send[static_cast<size_t>(me.me)] == RankPiece{me.me, me.want},
              "a reduce-scatter of another box");
      for_each_index(me.want, [&](const Shape& i) {
        auto& sum = result[position(me.want, i)];
        const int64_t value = in[peer][position(ranks[peer].have, i)];
        sum = p == 0 ? value : combine(*step.op, sum, value);
      });
    }
    const auto n = static_cast<int64_t>(me.group.size());
    const int64_t size = me.want.numel();
    if (scatter) moved += (n - 1) * size;
    if (!scatter && me.me == 0) moved += 2 * (n - 1) * size;
    return result;
  }
};

Locals run_step(const ReshardStep& step, const Locals& in) {
  const MeshLayout& mesh = step.from.mesh();
  Runner runner{step, in, {}, 0};
  int64_t sent = 0;
  int64_t received = 0;
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    const RankStep& me = runner.ranks.emplace_back(rank_step(step, at));
    require(me.group.at(static_cast<size_t>(me.me)) == mesh.ranks()[static_cast<size_t>(i)],
            "this rank is not itself in its group");
    require(static_cast<int64_t>(in[static_cast<size_t>(i)].size()) == me.have.numel() &&
                me.have == box_before(step, at) && me.want == box_after(step, at),
            "boxes of a step");
    sent += traffic(step, at).sent;
    received += dtensor::received(step, at);
  }
  Locals out;
  for (size_t r = 0; r < runner.ranks.size(); ++r) {
    const bool reduces = step.kind == StepKind::kReduceScatter || step.kind == StepKind::kAllReduce;
    out.push_back(reduces ? runner.run_reduction(r) : runner.run_moves(r));
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
  for (int i = 0; i < layout.mesh().size(); ++i) {
    const Coordinate at = layout.mesh().coordinate_at(i);
    auto& local = all.emplace_back();
    for_each_index(layout.box(at),
                   [&](const Shape& index) { local.push_back(term(layout, seed, index, at)); });
  }
  return all;
}

namespace {

// A rank's tensor is what the next step takes it for.
void check_chain(const ReshardPlan& plan) {
  for (int i = 0; i < plan.from().mesh().size(); ++i) {
    const Coordinate at = plan.from().mesh().coordinate_at(i);
    Box box = plan.from().box(at);
    const auto same = [&](const Box& next) {
      return box.size == next.size && (box.empty() || box == next);
    };
    for (const ReshardStep& step : plan.steps()) {
      require(same(box_before(step, at)), "steps that do not follow");
      box = box_after(step, at);
    }
    require(same(plan.to().box(at)), "steps that do not end");
  }
}

}  // namespace

Locals run(const ReshardPlan& plan, const Locals& locals) {
  check_chain(plan);
  Locals now = locals;
  for (const ReshardStep& step : plan.steps()) now = run_step(step, now);
  return now;
}

std::string compare(const Layout& from, const Layout& to, uint64_t seed, const Locals& got) {
  const MeshLayout& mesh = from.mesh();
  for (int i = 0; i < mesh.size(); ++i) {
    const Coordinate at = mesh.coordinate_at(i);
    const Box box = to.box(at);
    if (static_cast<int64_t>(got[static_cast<size_t>(i)].size()) != box.numel()) return "size";
    // Over mesh dims that became Partial the terms together are the value.
    const auto terms = vary(mesh, at, [&](int m) { return new_partial(from, to, m); });
    const auto olds = vary(mesh, at, [&](int m) { return resolves(from, to, m); });
    std::string wrong;
    for_each_index(box, [&](const Shape& index) {
      std::optional<int64_t> want;
      for (const Coordinate& old : olds) {
        const int64_t value = term(from, seed, index, old);
        want = want ? combine(from.spec().partial_op(), *want, value) : value;
      }
      std::optional<int64_t> have;
      for (const Coordinate& one : terms) {
        const size_t r = index_of(mesh, one);
        const int64_t value = got[r][position(to.box(one), index)];
        have = have ? combine(to.spec().partial_op(), *have, value) : value;
      }
      if (have != want) {
        wrong = "element " + to_string(index) + " of mesh index " + std::to_string(i) + " is " +
                std::to_string(*have) + ", not " + std::to_string(*want);
      }
    });
    if (!wrong.empty()) return wrong;
  }
  return {};
}

int64_t least_by_counting(const Layout& from, const Layout& to) {
  const MeshLayout& mesh = from.mesh();
  // S -> P keeps its parts: as if those mesh dims stayed as they are.
  Layout target = before_partial(from, to);
  int64_t n = 1;
  for (int m = 0; m < mesh.ndim(); ++m) n *= resolves(from, to, m) ? mesh.size(m) : 1;
  int64_t all = 0;
  for_each_index({Shape::filled(from.ndim(), 0), from.shape()}, [&](const Shape& index) {
    std::map<int, std::pair<bool, int64_t>> groups;  // by rank at coordinate 0: holds it, wanted
    for (int i = 0; i < mesh.size(); ++i) {
      const Coordinate at = mesh.coordinate_at(i);
      Coordinate first = at;
      bool wants = true;
      for (int m = 0; m < mesh.ndim(); ++m) {
        if (resolves(from, to, m)) first[m] = 0;
        if (new_partial(from, to, m) && from.placement(m).is_replicate() && at[m] != 0) {
          wants = false;
        }
      }
      auto& group = groups[mesh.rank_at(first)];
      group.first = holds(from.box(at), index);
      group.second += wants && holds(target.box(at), index) ? 1 : 0;
    }
    int64_t outside = 0;
    bool inside = false;
    for (const auto& [key, group] : groups) {
      const auto& [has, wanted] = group;
      if (has && wanted > 0 && n > 1) all += n - 1 + wanted - 1;
      inside |= has && wanted > 0;
      if (!has) outside += wanted;
    }
    all += outside + (outside > 0 && !inside ? n - 1 : 0);
  });
  return all;
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
    require(payload >= least, "payload below the minimum");
  } catch (const std::exception& e) {
    return what + e.what();
  }
  return {};
}

}  // namespace dtensor::test
