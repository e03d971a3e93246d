#include "dtensor/tensor/move.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/placement/plan_cache.h"
#include "dtensor/tensor/communication.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/step.h"

namespace dtensor {
namespace {

using internal::CommStep;
using internal::StepItem;

bool communicates(const ReshardStep& step) { return step.kind != StepKind::kLocal; }

// Do two steps go in one call? Between two meshes all ranks take part in all that moves there, and
// a list of broadcasts goes as an exchange.
bool same_call(const ReshardStep& x, const ReshardStep& y) {
  if (x.is_between_meshes() || y.is_between_meshes()) {
    return x.is_between_meshes() && y.is_between_meshes() && *x.ranks == *y.ranks;
  }
  return x.kind == y.kind && x.mesh_dims == y.mesh_dims && x.op == y.op &&
         x.from_only == y.from_only && x.to_only == y.to_only && x.from.mesh() == y.from.mesh();
}

// Do two plans make the same calls on the same groups?
bool same_calls(const ReshardPlan& a, const ReshardPlan& b) {
  const auto next = [](const ReshardPlan& p, size_t i) {
    while (i < p.steps().size() && !communicates(p.steps()[i])) ++i;
    return i;
  };
  size_t i = next(a, 0);
  size_t j = next(b, 0);
  for (; i < a.steps().size() && j < b.steps().size(); i = next(a, i + 1), j = next(b, j + 1)) {
    if (!same_call(a.steps()[i], b.steps()[j])) return false;
  }
  return i == a.steps().size() && j == b.steps().size();
}

// The shape of this rank's result; none outside the mesh of `to`.
std::optional<Shape> result_shape(const MoveItem& item, const DeviceMesh& mesh) {
  const auto at = item.to.mesh().coordinate_of(mesh.rank());
  if (!at) return std::nullopt;
  return item.to.local_shape(*at);
}

void check_into(const MoveItem& item, const DeviceMesh& mesh, DType dtype) {
  const Shape want = *result_shape(item, mesh);
  if (item.into.is_contiguous() && item.into.shape() == want && item.into.dtype() == dtype) {
    return;
  }
  throw ArgumentError("Move: the memory given for " + std::string(name_of(dtype)) +
                      to_string(want) + " is " + std::string(name_of(item.into.dtype())) +
                      to_string(item.into.shape()) +
                      (item.into.is_contiguous() ? "" : ", not contiguous"));
}

// One tensor on its way.
struct Moving {
  MoveItem item;
  std::shared_ptr<const RankPlan> plan;
  Tensor now;  // undefined where this rank holds nothing
  DType now_dtype = DType::kFloat32;
  size_t step = 0;  // the next one
  uint64_t into_version = 0;

  DType dtype() const { return item.local.defined() ? item.local.dtype() : item.dtype; }
  DType wire_dtype() const { return item.wire_dtype.value_or(dtype()); }
  bool done() const { return step == plan->plan.steps().size(); }
  const ReshardStep& next() const { return plan->plan.steps()[step]; }
  const RankStep& mine() const { return plan->mine[step]; }
  StepItem step_item() const {
    const bool last = step + 1 == plan->plan.steps().size() && now_dtype == dtype();
    return {&next(), &mine(), now, last ? item.into : Tensor(), now_dtype};
  }
  void end_step(Tensor result) {
    now = std::move(result);
    ++step;
  }
  // Runs local steps up to the next one that communicates.
  void run_local_steps() {
    while (!done() && !communicates(next())) {
      end_step(mine().takes_part() ? internal::run_local(step_item()) : Tensor());
    }
  }
  // What communicates has the dtype of the wire.
  void cast_for_wire() {
    now_dtype = wire_dtype();
    if (now.defined()) now = now.to(now_dtype);
  }
};

void check_wire_dtype(DType dtype, DType wire) {
  if (wire == dtype || (is_floating(wire) && is_floating(dtype))) return;
  throw ArgumentError("wire_dtype " + std::string(name_of(wire)) + " for a tensor of " +
                      std::string(name_of(dtype)) +
                      ": only floating numbers are rounded on the wire; leave wire_dtype out");
}

std::string names_of(const std::vector<int>& mesh_dims, const MeshLayout& mesh) {
  std::string names;
  for (const int m : mesh_dims) names += (names.empty() ? "\"" : ", \"") + mesh.name(m) + "\"";
  return names;
}

void copy_cast(const Tensor& src, const Tensor& dst) {
  if (src.dtype() == dst.dtype()) return kernels::copy(src, dst);
  kernels::cast(src, dst);
}

// Nothing where a step wrote there already. An input that its plan leaves alone may be another view
// of the memory.
void write_into(const Tensor& result, const Tensor& into) {
  if (result.storage() != into.storage()) return copy_cast(result, into);
  if (result.raw() == into.raw() && result.is_contiguous()) return;
  copy_cast(result.clone(), into);
}

// Throws inside NoCommunication where the plan sends anything.
void check_scope(const ReshardPlan& plan, DType dtype, const MoveOptions& options) {
  for (const ReshardStep& step : plan.steps()) {
    if (!communicates(step)) continue;
    return internal::check_may_communicate(
        options.op, options.site,
        "an " + std::string(name_of(step.kind)) + " of " +
            std::to_string(step.payload * size_of(dtype)) + " bytes " +
            (step.is_between_meshes() ? "between two meshes"
                                      : "on " + names_of(step.mesh_dims, step.from.mesh())));
  }
}

bool sends_nothing(const ReshardPlan& plan) {
  return plan.is_free() &&
         std::ranges::none_of(plan.steps(), [](const ReshardStep& s) { return communicates(s); });
}

}  // namespace

struct Move::State {
  DeviceMesh mesh;
  std::vector<Moving> items;
  // Items whose plans make the same calls move together.
  struct Party {
    std::vector<size_t> members;
    std::optional<CommStep> flying;
    bool passes = false;         // other ranks have a step under way that this one has no part in
    std::vector<int64_t> calls;  // numbers in the ledger, of those in a row the first
  };
  std::vector<Party> parties;
  std::string op;
  std::string of;
  std::string label;
  Cause cause = Cause::kExplicit;
  CallSite site;
  std::shared_ptr<internal::CommunicationScope> scope;  // that was open when it started

  void form_parties();
  void issue(Party& party);
  void land(Party& party);
  comm::Comm& comm_of(const ReshardStep& step) const;
  void enter(Party& party, int calls, LedgerEntry::Time begin) const;
  void enter(const Moving& moving, int64_t call, int calls, LedgerEntry::Time begin) const;
};

void Move::State::form_parties() {
  for (size_t i = 0; i < items.size(); ++i) {
    const auto it = std::find_if(parties.begin(), parties.end(), [&](const Party& p) {
      return same_calls(items[p.members.front()].plan->plan, items[i].plan->plan);
    });
    (it != parties.end() ? *it : parties.emplace_back()).members.push_back(i);
  }
}

void Move::State::enter(const Moving& moving, int64_t call, int calls,
                        LedgerEntry::Time begin) const {
  const ReshardStep& step = moving.plan->plan.steps()[moving.step];
  auto& ledger = Context::current().slot<Ledger>();
  const int64_t payload = step.payload * size_of(moving.dtype());
  const int64_t wire = step.payload * size_of(moving.wire_dtype());
  if (internal::count_communication(scope.get(), payload, wire)) {
    return ledger.count(payload, wire);
  }
  LedgerEntry entry;
  entry.kind = step.kind;
  entry.mesh_dims = step.mesh_dims;
  entry.op = op;
  entry.from = step.from;
  entry.to = step.to;
  entry.dtype = moving.dtype();
  entry.wire_dtype = moving.wire_dtype();
  entry.payload_bytes = payload;
  entry.wire_bytes = wire;
  entry.cause = cause;
  entry.of = of;
  entry.site = site;
  entry.call = call;
  entry.calls = calls;
  entry.label = moving.item.label;
  entry.begin = entry.end = begin;
  ledger.enter(std::move(entry));
}

comm::Comm& Move::State::comm_of(const ReshardStep& step) const {
  if (step.is_between_meshes()) return mesh.group_of_ranks(*step.ranks);
  internal_check(step.from.mesh().ranks() == mesh.layout().ranks(), "a step on another mesh");
  return mesh.group(step.mesh_dims);
}

// Enters the party's step, which moves in `calls` calls.
void Move::State::enter(Party& party, int calls, LedgerEntry::Time begin) const {
  party.calls.clear();
  const bool one_by_one = static_cast<size_t>(calls) == party.members.size();
  for (size_t k = 0; k < party.members.size(); ++k) {
    const Moving& moving = items[party.members[k]];
    const int rank = mesh.rank();
    if (!moving.item.from.mesh().contains(rank) && !moving.item.to.mesh().contains(rank)) {
      continue;
    }
    auto& ledger = Context::current().slot<Ledger>();
    if (one_by_one || party.calls.empty()) {
      party.calls.push_back(ledger.next_call());
      for (int more = 1; more < calls && !one_by_one; ++more) ledger.next_call();
    }
    enter(moving, party.calls.back(), one_by_one ? 1 : calls, begin);
  }
}

// Runs local steps, then issues the collective that is next, if there is one, or passes it: a rank
// that takes no part in it goes on no earlier than one that does, in land(). So all ranks issue
// what moves, of all Moves and parties, in one order. What other ranks of the meshes do is entered,
// too: the ledgers of all are alike.
void Move::State::issue(Party& party) {
  for (const size_t i : party.members) items[i].run_local_steps();
  const Moving& first = items[party.members.front()];
  if (first.done()) return;
  const auto begin = std::chrono::steady_clock::now();
  for (const size_t i : party.members) items[i].cast_for_wire();
  if (!first.mine().takes_part()) {
    party.passes = true;
    return enter(party, internal::calls_of(first.next().kind, party.members.size()), begin);
  }
  std::vector<StepItem> step;
  for (const size_t i : party.members) step.push_back(items[i].step_item());
  comm::Comm& comm = comm_of(first.next());
  party.flying = CommStep::start(comm, std::move(step), label);
  enter(party, party.flying->calls(), begin);
}

// Completes the party's plans.
void Move::State::land(Party& party) {
  while (party.flying || party.passes) {
    if (party.passes) {
      for (const size_t i : party.members) {
        items[i].end_step(items[i].mine().holds_after ? items[i].now : Tensor());
      }
      party.passes = false;
    } else {
      std::vector<Tensor> results = party.flying->finish();
      party.flying.reset();
      const auto end = std::chrono::steady_clock::now();
      for (const int64_t call : party.calls) Context::current().slot<Ledger>().end_call(call, end);
      for (size_t k = 0; k < party.members.size(); ++k) {
        items[party.members[k]].end_step(std::move(results[k]));
      }
    }
    issue(party);
  }
}

Move::Move(std::unique_ptr<State> state) : state_(std::move(state)) {}
Move::Move(Move&&) noexcept = default;
Move& Move::operator=(Move&&) noexcept = default;
Move::~Move() = default;

Move Move::start(const DeviceMesh& mesh, std::vector<MoveItem> items, const MoveOptions& options) {
  auto state = std::make_unique<State>();
  state->mesh = mesh;
  state->op = options.op;
  state->of = options.of;
  state->cause = options.cause;
  state->site = options.site;
  state->scope = Context::current().slot<internal::CurrentCommunication>().scope;
  auto& plans = Context::current().slot<PlanCache>();
  for (MoveItem& item : items) {
    if (state->label.empty()) state->label = item.label;
    Moving moving;
    moving.plan = plans.get(item.from, item.to, mesh.rank());
    moving.now = item.local;
    moving.now_dtype = item.local.defined() ? item.local.dtype() : item.dtype;
    if (item.into.defined() && result_shape(item, mesh)) {
      check_into(item, mesh, moving.now_dtype);
      moving.into_version = item.into.storage()->version();
    }
    moving.item = std::move(item);
    check_wire_dtype(moving.dtype(), moving.wire_dtype());
    if (state->scope != nullptr) check_scope(moving.plan->plan, moving.wire_dtype(), options);
    state->items.push_back(std::move(moving));
  }
  if (state->label.empty()) state->label = options.op;
  state->form_parties();
  for (State::Party& party : state->parties) state->issue(party);
  return Move(std::move(state));
}

bool Move::ready() const {
  internal_check(state_ != nullptr, "a Move that was finished was asked whether it is ready");
  return std::ranges::all_of(state_->parties, [](const State::Party& party) {
    return !party.flying || party.flying->ready();
  });
}

bool Move::is_free(size_t item) const {
  internal_check(state_ != nullptr, "a Move that was finished was asked whether it is free");
  return sends_nothing(state_->items[item].plan->plan);
}

std::vector<Tensor> Move::finish() {
  internal_check(state_ != nullptr, "a Move was finished twice");
  const std::unique_ptr<State> state = std::move(state_);
  for (State::Party& party : state->parties) state->land(party);
  std::vector<Tensor> results;
  for (Moving& moving : state->items) {
    const auto shape = result_shape(moving.item, state->mesh);
    if (!shape) {
      results.emplace_back();
      continue;
    }
    // Pieces without elements need no step, but have a shape.
    internal_check(moving.now.defined() || shape->numel() == 0, "a plan left a rank without data");
    if (!moving.now.defined()) moving.now = Tensor::empty(*shape, moving.dtype());
    if (!(moving.now.shape() == *shape)) moving.now = moving.now.reshape(*shape);
    // Also where this rank's steps left its piece as it lay: on others they made new ones, and what
    // is a view of the result must not depend on the rank.
    if (!moving.plan->plan.steps().empty()) moving.now = moving.now.contiguous();
    const Tensor& into = moving.item.into;
    if (into.defined()) {
      write_into(moving.now, into);
      into.storage()->restore_version(moving.into_version);
      moving.now = into;
    }
    results.push_back(moving.now.to(moving.dtype()));
  }
  return results;
}

MoveForecast forecast_move(const Layout& from, const Layout& to, const DeviceMesh& mesh) {
  const auto made = Context::current().slot<PlanCache>().get(from, to, mesh.rank());
  MoveForecast forecast{.is_free = sends_nothing(made->plan),
                        .payload = made->plan.payload(),
                        .most_received = made->plan.most_received()};
  const int rank = mesh.rank();
  if (!from.mesh().contains(rank) || !to.mesh().contains(rank)) forecast.shares_memory = false;
  for (size_t i = 0; i < made->plan.steps().size(); ++i) {
    const bool local = !communicates(made->plan.steps()[i]);
    forecast.shares_memory = forecast.shares_memory && local && internal::aliases(made->mine[i]);
  }
  return forecast;
}

Tensor move_local(const DeviceMesh& mesh, const MoveItem& item, const MoveOptions& options) {
  return std::move(Move::start(mesh, {item}, options).finish()[0]);
}

}  // namespace dtensor
