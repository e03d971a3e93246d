#include "dtensor/tensor/move.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/step.h"

namespace dtensor {
namespace {

using internal::CommStep;
using internal::StepItem;

// A plan and this rank's part of it.
struct RankPlan {
  ReshardPlan plan;
  std::vector<RankStep> mine;
};

// Plans of this rank: a slot of the Context. Programs repeat the same few moves.
class PlanCache {
 public:
  std::shared_ptr<const RankPlan> get(const Layout& from, const Layout& to,
                                      const DeviceMesh& mesh) {
    const Key key{from, to, mesh.rank()};
    if (const auto it = plans_.find(key); it != plans_.end()) return it->second;
    auto made = std::make_shared<RankPlan>();
    made->plan = plan(from, to);
    for (int i = 0; i < static_cast<int>(made->plan.steps().size()); ++i) {
      made->mine.push_back(made->plan.rank_step(i, *mesh.coordinate()));
    }
    if (plans_.size() >= kMost) plans_.clear();
    plans_.emplace(key, made);
    return made;
  }

 private:
  static constexpr size_t kMost = 4096;
  struct Key {
    Layout from;
    Layout to;
    int rank = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t h = key.from.spec().hash();
      const auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x9e3779b97f4a7c15U; };
      mix(key.to.spec().hash());
      for (const int64_t d : key.from.shape()) mix(static_cast<uint64_t>(d));
      return h ^ (h >> 32);
    }
  };
  std::unordered_map<Key, std::shared_ptr<const RankPlan>, Hash> plans_;
};

bool communicates(const ReshardStep& step) { return step.kind != StepKind::kLocal; }

// Do two plans make the same calls on the same groups?
bool same_calls(const ReshardPlan& a, const ReshardPlan& b) {
  const auto next = [](const ReshardPlan& p, size_t i) {
    while (i < p.steps().size() && !communicates(p.steps()[i])) ++i;
    return i;
  };
  size_t i = next(a, 0);
  size_t j = next(b, 0);
  for (; i < a.steps().size() && j < b.steps().size(); i = next(a, i + 1), j = next(b, j + 1)) {
    const ReshardStep& x = a.steps()[i];
    const ReshardStep& y = b.steps()[j];
    if (x.kind != y.kind || x.mesh_dims != y.mesh_dims || x.op != y.op || x.to_only != y.to_only) {
      return false;
    }
  }
  return i == a.steps().size() && j == b.steps().size();
}

void check_into(const MoveItem& item, const DeviceMesh& mesh) {
  const Shape want = item.to.local_shape(*mesh.coordinate());
  if (item.into.is_contiguous() && item.into.shape() == want &&
      item.into.dtype() == item.local.dtype()) {
    return;
  }
  throw ArgumentError("Move: the memory given for " + std::string(name_of(item.local.dtype())) +
                      to_string(want) + " is " + std::string(name_of(item.into.dtype())) +
                      to_string(item.into.shape()) +
                      (item.into.is_contiguous() ? "" : ", not contiguous"));
}

// One tensor on its way.
struct Moving {
  MoveItem item;
  std::shared_ptr<const RankPlan> plan;
  Tensor now;
  size_t step = 0;  // the next one
  uint64_t into_version = 0;

  bool done() const { return step == plan->plan.steps().size(); }
  StepItem step_item() const {
    const bool last = step + 1 == plan->plan.steps().size();
    return {&plan->plan.steps()[step], &plan->mine[step], now, last ? item.into : Tensor()};
  }
  // Runs local steps up to the next one in which this rank communicates.
  void run_local_steps() {
    for (; !done(); ++step) {
      if (!plan->mine[step].takes_part()) continue;
      if (communicates(plan->plan.steps()[step])) return;
      now = internal::run_local(step_item());
    }
  }
};

}  // namespace

struct Move::State {
  DeviceMesh mesh;
  std::vector<Moving> items;
  // Items whose plans make the same calls move together.
  struct Party {
    std::vector<size_t> members;
    std::optional<CommStep> flying;
  };
  std::vector<Party> parties;
  std::string op;
  std::string of;
  std::string label;
  Cause cause = Cause::kExplicit;
  CallSite site;

  void form_parties();
  void issue(Party& party);
  void land(Party& party);
  void enter(const Moving& moving, const ReshardStep& step, int64_t call) const;
};

void Move::State::form_parties() {
  for (size_t i = 0; i < items.size(); ++i) {
    const auto it = std::find_if(parties.begin(), parties.end(), [&](const Party& p) {
      return same_calls(items[p.members.front()].plan->plan, items[i].plan->plan);
    });
    (it != parties.end() ? *it : parties.emplace_back()).members.push_back(i);
  }
}

void Move::State::enter(const Moving& moving, const ReshardStep& step, int64_t call) const {
  LedgerEntry entry;
  entry.kind = step.kind;
  entry.mesh_dims = step.mesh_dims;
  entry.op = op;
  entry.from = step.from;
  entry.to = step.to;
  entry.payload_bytes = step.payload * size_of(moving.item.local.dtype());
  entry.cause = cause;
  entry.of = of;
  entry.site = site;
  entry.call = call;
  entry.label = moving.item.label;
  Context::current().slot<Ledger>().enter(std::move(entry));
}

// Runs local steps, then issues the collective that is next, if there is one.
void Move::State::issue(Party& party) {
  std::vector<StepItem> step;
  for (const size_t i : party.members) {
    items[i].run_local_steps();
    if (!items[i].done()) step.push_back(items[i].step_item());
  }
  if (step.empty()) return;
  const std::vector<int>& dims = step.front().step->mesh_dims;
  party.flying = CommStep::start(mesh.group(dims), std::move(step), label);
  auto& ledger = Context::current().slot<Ledger>();
  int64_t call = 0;
  for (size_t k = 0; k < party.members.size(); ++k) {
    if (static_cast<int>(k) < party.flying->calls()) call = ledger.next_call();
    const Moving& moving = items[party.members[k]];
    enter(moving, moving.plan->plan.steps()[moving.step], call);
  }
}

// Completes the party's plans.
void Move::State::land(Party& party) {
  while (party.flying) {
    std::vector<Tensor> results = party.flying->finish();
    party.flying.reset();
    for (size_t k = 0; k < party.members.size(); ++k) {
      Moving& moving = items[party.members[k]];
      moving.now = std::move(results[k]);
      ++moving.step;
    }
    issue(party);
  }
}

Move::Move(std::unique_ptr<State> state) : state_(std::move(state)) {}
Move::Move(Move&&) noexcept = default;
Move& Move::operator=(Move&&) noexcept = default;
Move::~Move() = default;

Move Move::start(const DeviceMesh& mesh, std::vector<MoveItem> items, const MoveOptions& options) {
  internal_check(mesh.coordinate().has_value(), "a Move on a rank outside the mesh");
  auto state = std::make_unique<State>();
  state->mesh = mesh;
  state->op = options.op;
  state->of = options.of;
  state->cause = options.cause;
  state->site = options.site;
  auto& plans = Context::current().slot<PlanCache>();
  for (MoveItem& item : items) {
    if (state->label.empty()) state->label = item.label;
    Moving moving;
    moving.plan = plans.get(item.from, item.to, mesh);
    moving.now = item.local;
    if (item.into.defined()) {
      check_into(item, mesh);
      moving.into_version = item.into.storage()->version();
    }
    moving.item = std::move(item);
    state->items.push_back(std::move(moving));
  }
  if (state->label.empty()) state->label = options.op;
  state->form_parties();
  for (State::Party& party : state->parties) state->issue(party);
  return Move(std::move(state));
}

std::vector<Tensor> Move::finish() {
  internal_check(state_ != nullptr, "a Move was finished twice");
  const std::unique_ptr<State> state = std::move(state_);
  for (State::Party& party : state->parties) state->land(party);
  std::vector<Tensor> results;
  for (Moving& moving : state->items) {
    // Pieces without elements need no step, but have a shape.
    const Shape shape = moving.item.to.local_shape(*state->mesh.coordinate());
    if (!(moving.now.shape() == shape)) moving.now = moving.now.reshape(shape);
    const Tensor& into = moving.item.into;
    if (into.defined()) {
      if (moving.now.storage() != into.storage()) kernels::copy(moving.now, into);
      into.storage()->restore_version(moving.into_version);
      moving.now = into;
    }
    results.push_back(std::move(moving.now));
  }
  return results;
}

Tensor move_local(const DeviceMesh& mesh, const MoveItem& item, const MoveOptions& options) {
  return std::move(Move::start(mesh, {item}, options).finish()[0]);
}

}  // namespace dtensor
