#include "dtensor/ops/dispatch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/base/allocator.h"
#include "dtensor/base/inline_text.h"
#include "dtensor/comm/comm.h"
#include "dtensor/ops/automatic_copy.h"
#include "dtensor/ops/cpu/value_error.h"
#include "dtensor/ops/rule_cache.h"
#include "dtensor/placement/apply_rule.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tensor/alias.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/policy.h"
#include "dtensor/tensor/redistribute.h"

namespace dtensor::ops {
namespace {

// Where a letter stands in a rule's inputs.
struct Spot {
  size_t input = 0;
  int dim = 0;
};

Spot find_letter(const Rule& rule, char letter) {
  Spot spot;
  for (const char c : rule.letters) {
    if (c == letter) return spot;
    if (c == '-') break;
    if (c == ',') {
      ++spot.input;
      spot.dim = 0;
    } else {
      ++spot.dim;
    }
  }
  throw InternalError("rule " + rule.letters + " has no letter " + letter);
}

void check_defined(const Rule& rule, std::span<const DTensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) continue;
    throw ArgumentError(rule.op + ": " + rule.name(static_cast<int>(i)) + " is an empty handle");
  }
}

// The mesh that the inputs lie on, nullptr for none. A scalar on no mesh counts as R.
const DeviceMesh* common_mesh(const Rule& rule, std::span<const DTensor> inputs) {
  const DTensor* first = nullptr;
  int at = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].mesh().defined()) continue;
    if (first && !(first->mesh() == inputs[i].mesh())) {
      throw PlacementError(rule.op + ": " + rule.name(at) + " is on mesh " +
                           to_string(first->mesh().layout()) + ", " +
                           rule.name(static_cast<int>(i)) + " on another, " +
                           to_string(inputs[i].mesh().layout()) + "; redistribute one of them");
    }
    if (first) continue;
    first = &inputs[i];
    at = static_cast<int>(i);
  }
  if (!first) return nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].mesh().defined()) continue;
    if (inputs[i].ndim() == 0 && !inputs[i].requires_grad()) continue;
    const std::string name = rule.name(static_cast<int>(i));
    throw PlacementError(rule.op + ": " + name + " " + to_string(inputs[i].shape()) +
                         " is on no mesh, " + rule.name(at) + " on " +
                         to_string(first->mesh().layout()) + "; use replicate(" + name + ", mesh)");
  }
  return &first->mesh();
}

// An op without a rule is its kernel on no mesh; on a mesh nobody can say what it gives.
[[noreturn]] void refuse_without_rule(const Rule& rule, std::span<const DTensor> inputs) {
  std::string text = "no rule for " + rule.op + ":";
  for (size_t i = 0; i < inputs.size(); ++i) {
    text += (i == 0 ? " " : ", ") + rule.name(static_cast<int>(i)) + " " +
            std::string(name_of(inputs[i].dtype())) + to_string(inputs[i].shape()) + " is " +
            (inputs[i].mesh().defined() ? to_string(inputs[i].spec()) : "on no mesh");
  }
  throw PlacementError(
      text + "; state one in letters (docs/custom_op.md), or use local() and from_local()");
}

using Layouts = InlineVector<Layout, 4>;

Layouts layouts_of(std::span<const DTensor> inputs) {
  Layouts layouts;
  for (const DTensor& x : inputs) layouts.push_back(x.layout());
  return layouts;
}

// The fix that kAuto makes: of those that cut nothing that was not cut on that mesh dim, the one
// that moves the least bytes, a tensor that stands twice counted once; of equals the one whose
// result is not Partial. There always is one: everything R.
const Fix* cheapest(std::span<const Fix> fixes, std::span<const DTensor> inputs) {
  const Fix* best = nullptr;
  std::pair<int64_t, bool> least;
  for (const Fix& fix : fixes) {
    if (fix.new_cuts > 0) continue;
    std::pair<int64_t, bool> cost{0, fix.out.front().spec().has_partial()};
    for (size_t i = 0; i < inputs.size(); ++i) {
      bool again = false;
      for (size_t j = 0; j < i; ++j) {
        again = again || (inputs[j].impl() == inputs[i].impl() && fix.in[j] == fix.in[i]);
      }
      if (!again) cost.first += fix.each[i];
    }
    if (best && least <= cost) continue;
    best = &fix;
    least = cost;
  }
  return best;
}

// The inputs of a call; a list of their own once one of them is moved.
class Inputs {
 public:
  explicit Inputs(std::span<const DTensor> given) : given_(given) {}
  std::span<const DTensor> all() const {
    return moved_.empty() ? given_ : std::span<const DTensor>(moved_.data(), moved_.size());
  }
  const DTensor& operator[](size_t i) const { return all()[i]; }
  size_t size() const { return given_.size(); }
  void set(size_t i, DTensor t) {
    if (moved_.empty()) moved_.append(given_.begin(), given_.end());
    moved_[i] = std::move(t);
  }

 private:
  std::span<const DTensor> given_;
  InlineVector<DTensor, 4> moved_;
};

void make_fix(const Fix& fix, Inputs& inputs, std::string_view op, CallSite site) {
  const InlineVector<DTensor, 4> before(inputs.all().begin(), inputs.all().end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (fix.in[i] == before[i].layout()) continue;
    for (size_t j = 0; j < i; ++j) {
      if (before[j].impl() == before[i].impl() && fix.in[j] == fix.in[i]) inputs.set(i, inputs[j]);
    }
    if (inputs[i].layout() == fix.in[i]) continue;
    inputs.set(i, move_for_op(inputs[i], fix.in[i], MoveReason::kAutomatic, op, site));
  }
}

// Does a row leave the operand that is written (FixedOperand) where it is, and give its layout?
template <class In, class Out>
bool keeps_fixed(const DTensor& fixed, std::span<const DTensor> inputs, const In& in,
                 const Out& out) {
  if (!fixed.defined()) return true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].impl() != fixed.impl()) continue;
    if (!(in(i) == fixed.spec()) || !(out == fixed.layout())) return false;
  }
  return true;
}

bool keeps_fixed(const DTensor& fixed, std::span<const DTensor> inputs,
                 const std::vector<Layout>& in, const std::vector<Layout>& out) {
  return keeps_fixed(
      fixed, inputs, [&](size_t i) { return in[i].spec(); }, out.front());
}

// The other operands whole, where the one that is written would then stay: fixes() looks for no
// other row where one fits that would cut it.
std::optional<Fix> whole_beside_fixed(const Rule& rule, std::span<const DTensor> inputs,
                                      const DTensor& fixed, bool allow_communicating) {
  Fix fix;
  const Layouts in = layouts_of(inputs);
  for (size_t i = 0; i < in.size(); ++i) {
    const bool stays = inputs[i].impl() == fixed.impl();
    fix.in.push_back(stays ? in[i] : Layout::replicated(in[i].mesh(), in[i].shape()));
    fix.each.push_back(plan(in[i], fix.in[i]).most_received() * size_of(inputs[i].dtype()));
    fix.received_bytes += fix.each[i];
  }
  RuleMatch match = match_rule(rule, fix.in, allow_communicating);
  if (match.mismatch || !keeps_fixed(fixed, inputs, match.result.in, match.result.out)) {
    return std::nullopt;
  }
  fix.out = std::move(match.result.out);
  return fix;
}

// Finds the row that takes inputs; under kAuto brings them to the cheapest fix where none does.
RuleResult find_row(const OpCall& call, Inputs& inputs) {
  InlineVector<DType, 4> dtypes;
  for (const DTensor& x : inputs.all()) dtypes.push_back(x.dtype());
  const RuleOptions options{call.allow_communicating, dtypes};
  const FixedOperand& fixed = Context::current().slot<FixedOperand>();
  const Layouts in = layouts_of(inputs.all());
  RuleMatch match = match_rule(call.rule, in, call.allow_communicating);
  if (!match.mismatch) {
    RuleResult& row = match.result;
    if (keeps_fixed(fixed.tensor, inputs.all(), row.in, row.out)) return std::move(row);
    match.mismatch = {0, std::string(fixed.op) + " does not move what it writes"};
  }
  std::vector<Fix> found = fixes(call.rule, in, options);
  std::erase_if(found, [&](const Fix& fix) {
    return !keeps_fixed(fixed.tensor, inputs.all(), fix.in, fix.out);
  });
  if (found.empty() && fixed.tensor.defined()) {
    auto fix = whole_beside_fixed(call.rule, inputs.all(), fixed.tensor, call.allow_communicating);
    if (fix) found.push_back(*std::move(fix));
  }
  if (Context::current().slot<CurrentPolicy>().policy == RedistributePolicy::kAuto) {
    if (const Fix* fix = cheapest(found, inputs.all())) {
      make_fix(*fix, inputs, call.rule.op, call.site);
      return apply_rule(call.rule, layouts_of(inputs.all()), options);
    }
  }
  throw PlacementError(no_row_text(call.rule, in, *match.mismatch, found, options));
}

void move_silently(const OpCall& call, Inputs& inputs, size_t i, const Spec& to) {
  if (inputs[i].spec().id() == to.id()) return;
  const Layout layout(to, inputs[i].shape());
  if (inputs[i].layout() == layout) return;
  inputs.set(i, move_for_op(inputs[i], layout, MoveReason::kSilent, call.rule.op, call.site));
}

// Where an output goes.
struct Place {
  Layout layout;
  Shape local;  // on this rank; of a rank in the mesh
};
using Places = InlineVector<Place, 2>;

// Brings the inputs to a row of the rule; `at` is this rank's coordinate, nullptr outside the mesh.
Places place(const OpCall& call, Inputs& inputs, const Coordinate* at, RuleCache& cache,
             bool tapped) {
  Places out;
  const auto add_places = [&](std::span<const Layout> layouts) {
    for (const Layout& y : layouts)
      out.push_back({y, at != nullptr ? y.local_shape(*at) : Shape()});
  };
  const RuleUse use{call.rule, call.allow_communicating, call.lasting};
  const CachedRow* row = nullptr;  // a rule that is tapped may be another one
  if (!tapped) row = cache.find(use, inputs.all());
  const DTensor& fixed = Context::current().slot<FixedOperand>().tensor;
  if (row != nullptr && fixed.defined() &&
      !keeps_fixed(
          fixed, inputs.all(), [&](size_t i) { return row->in(i); },
          row->out(0, call.rule, inputs.all()))) {
    row = nullptr;
  }
  if (row != nullptr) {
    // A move runs ops of its own, which may clear the cache.
    InlineVector<Layout, 2> layouts;
    for (size_t o = 0; o < row->outputs(); ++o) {
      layouts.push_back(row->out(o, call.rule, inputs.all()));
      if (row->moves()) continue;
      out.push_back(
          {layouts[o], at != nullptr ? row->local_shape(o, call.rule, inputs.all()) : Shape()});
    }
    if (!row->moves()) return out;
    InlineVector<Spec, 4> to;
    for (size_t i = 0; i < inputs.size(); ++i) to.push_back(row->in(i));
    for (size_t i = 0; i < inputs.size(); ++i) move_silently(call, inputs, i, to[i]);
    add_places({layouts.data(), layouts.size()});
    return out;
  }
  const Layouts before = layouts_of(inputs.all());
  const RuleResult result = find_row(call, inputs);
  const Layouts in = layouts_of(inputs.all());
  if (!tapped && in == before) cache.keep(use, in, result);
  for (size_t i = 0; i < inputs.size(); ++i) {
    move_silently(call, inputs, i, result.in[i].spec());
  }
  add_places(result.out);
  return out;
}

// A Partial gradient of the output passes to the one input that wants a gradient, where the op is
// linear in it; any other op resolves it first.
bool passes_partial(const Rule& rule, std::span<const DTensor> inputs) {
  int wanting = 0;
  int which = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    ++wanting;
    which = static_cast<int>(i);
  }
  return wanting == 1 && std::ranges::any_of(rule.linear, [&](const Rule::InputSet& set) {
           return std::ranges::count(set, which) > 0;
         });
}

// A backward function that the tap sees the gradients of.
BackwardFn tapped_backward(std::string_view op, BackwardFn f) {
  return [op = InlineText<119>(op), f = std::move(f)](std::span<const DTensor> g) {
    Grads grads = f(g);
    const RuleTap& tap = Context::current().slot<RuleTap>();
    if (tap.gradients) tap.gradients(op, {grads.data(), grads.size()});
    return grads;
  };
}

// In a backward with create_graph an op without a gradient would end the graph without a word.
void check_not_in_backward(std::string_view op, std::span<const DTensor> outputs) {
  const auto node = Context::current().slot<RunningNode>().recorded.lock();
  if (node == nullptr || !is_floating(outputs.front().dtype())) return;
  throw Error("backward with create_graph through " + std::string(node->op()) +
              ": its backward runs " + std::string(op) +
              ", which has no gradient; docs/autograd.md lists the ops that can");
}

void record_call(const OpCall& call, std::span<const DTensor> inputs, std::span<DTensor> outputs,
                 const RuleTap& tap) {
  if (!grad_enabled()) return;
  if (!wants_gradient(call.rule.op, inputs)) return;
  if (!call.backward) return check_not_in_backward(call.rule.op, outputs);
  BackwardFn backward = call.backward(inputs, outputs);
  if (tap.gradients) backward = tapped_backward(call.rule.op, std::move(backward));
  record(call.rule.op, inputs, outputs, std::move(backward),
         {.passes_partial = passes_partial(call.rule, inputs),
          .twice = call.twice,
          .site = call.site});
}

// Names an op for the errors of memory that it asks for.
class MemoryUserScope {
 public:
  MemoryUserScope(Context& context, std::string_view op)
      : user_(context.slot<MemoryUser>()), before_(std::exchange(user_.op, op)) {}
  ~MemoryUserScope() { user_.op = before_; }
  MemoryUserScope(const MemoryUserScope&) = delete;
  MemoryUserScope& operator=(const MemoryUserScope&) = delete;

 private:
  MemoryUser& user_;
  std::string_view before_;
};

Tensors run_kernel(const OpCall& call, std::span<const DTensor> inputs, const Coordinate& at,
                   Context& context) {
  const MemoryUserScope user(context, call.rule.op);
  try {
    return call.kernel(KernelInfo(call.rule, inputs, at), Pieces(inputs));
  } catch (const cpu::ValueError& e) {
    InlineVector<DTensor, 4> integers;
    for (const DTensor& x : inputs) {
      if (!is_floating(x.dtype())) integers.push_back(x);
    }
    tell_other_ranks({integers.data(), integers.size()}, e.what());
    throw;
  }
}

DTensors run_on_no_mesh(const OpCall& call, std::span<const DTensor> inputs, Context& context) {
  if (!call.rule.letters.empty()) {
    InlineVector<Shape, 4> shapes;
    for (const DTensor& x : inputs) shapes.push_back(x.shape());
    check_sizes(call.rule, parse_letters(call.rule), shapes);
  }
  DTensors outputs;
  for (Tensor& y : run_kernel(call, inputs, Coordinate{}, context)) {
    outputs.emplace_back(std::move(y));
  }
  return outputs;
}

[[noreturn]] void refuse_result(const Rule& rule, size_t output, const Tensor& found,
                                const Place& place) {
  throw ArgumentError(
      rule.op + ": the kernel gave result " + std::to_string(output) + " the local shape " +
      to_string(found.shape()) + ", layout " + to_string(place.layout) + " of global shape " +
      to_string(place.layout.shape()) + " has " + to_string(place.local) + " on this rank");
}

DTensors run_on_mesh(const OpCall& call, Inputs& inputs, const DeviceMesh& mesh, Context& context,
                     bool tapped) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].mesh().defined()) inputs.set(i, replicate(inputs[i], mesh));
  }
  const Coordinate* at = mesh.coordinate() ? &*mesh.coordinate() : nullptr;
  Places out = place(call, inputs, at, context.slot<RuleCache>(), tapped);
  DTensors outputs;
  if (at != nullptr) {
    Tensors locals = run_kernel(call, inputs.all(), *at, context);
    internal_check(locals.size() == out.size(), "a kernel gave another number of results");
    for (size_t o = 0; o < locals.size(); ++o) {
      if (!(locals[o].shape() == out[o].local)) refuse_result(call.rule, o, locals[o], out[o]);
      outputs.push_back(internal::of_piece(std::move(locals[o]), std::move(out[o].layout), mesh));
    }
    return outputs;
  }
  const DType dtype = call.dtype.value_or(inputs[0].dtype());
  for (const Place& place : out) {
    const bool second = outputs.size() == 1;
    outputs.emplace_back(second ? call.second_dtype.value_or(dtype) : dtype, place.layout, mesh);
  }
  return outputs;
}

void mark_views(std::span<const DTensor> inputs, std::span<DTensor> outputs) {
  for (const DTensor& y : outputs) {
    for (const DTensor& x : inputs) internal::mark_alias(x, y);
  }
}

DTensors run_seen(const OpCall& call, std::span<const DTensor> given, Context& context,
                  const RuleTap& tap) {
  check_defined(call.rule, given);
  Inputs inputs(given);
  const DeviceMesh* mesh = common_mesh(call.rule, given);
  if (mesh != nullptr && call.rule.letters.empty()) refuse_without_rule(call.rule, given);
  DTensors outputs = mesh == nullptr
                         ? run_on_no_mesh(call, given, context)
                         : run_on_mesh(call, inputs, *mesh, context, tap.see != nullptr);
  mark_views(inputs.all(), {outputs.data(), outputs.size()});
  if (tap.ran) {
    tap.ran({call.rule.op,
             &call.rule,
             given,
             inputs.all(),
             {outputs.data(), outputs.size()},
             call.site});
  }
  record_call(call, inputs.all(), {outputs.data(), outputs.size()}, tap);
  return outputs;
}

}  // namespace

Range KernelInfo::range(char letter) const {
  const Spot spot = find_letter(rule_, letter);
  return inputs_[spot.input].layout().range(spot.dim, at_);
}

int64_t KernelInfo::size(char letter) const {
  for (const MadeLetter& made : rule_.made) {
    if (made.letter == letter) return made.size;
  }
  const Spot spot = find_letter(rule_, letter);
  return inputs_[spot.input].shape()[spot.dim];
}

DTensors run(const OpCall& call, std::span<const DTensor> inputs) {
  Context& context = Context::current();
  const RuleTap& tap = context.slot<RuleTap>();
  if (!tap.see) return run_seen(call, inputs, context, tap);
  Rule seen = call.rule;
  tap.see(seen);
  return run_seen({.rule = seen,
                   .kernel = call.kernel,
                   .backward = call.backward,
                   .allow_communicating = call.allow_communicating,
                   .dtype = call.dtype,
                   .second_dtype = call.second_dtype,
                   .site = call.site,
                   .twice = call.twice},
                  inputs, context, tap);
}

DTensor run1(const OpCall& call, std::span<const DTensor> inputs) {
  DTensors outputs = run(call, inputs);
  return std::move(outputs.front());
}

DTensor run1(const OpCall& call, std::initializer_list<DTensor> inputs) {
  return run1(call, std::span(inputs.begin(), inputs.size()));
}

DTensor run_placed(const PlacedCall& call, const DTensor& input) {
  Context& context = Context::current();
  const RuleTap& tap = context.slot<RuleTap>();
  DTensor output;
  {
    const MemoryUserScope user(context, call.op);
    if (!input.mesh().defined()) {
      output = DTensor(call.kernel(input.local_tensor(), call.out.shape()));
    } else if (const auto& at = input.mesh().coordinate(); at) {
      output = DTensor(call.kernel(input.local_tensor(), call.out.local_shape(*at)), call.out,
                       input.mesh());
    } else {
      output = DTensor(input.dtype(), call.out, input.mesh());
    }
  }
  mark_views({&input, 1}, {&output, 1});
  if (tap.ran) tap.ran({call.op, nullptr, {&input, 1}, {&input, 1}, {&output, 1}, call.site});
  if (!grad_enabled() || !wants_gradient(call.op, {&input, 1})) return output;
  if (!call.backward) {
    check_not_in_backward(call.op, {&output, 1});
  } else {
    BackwardFn backward = [f = call.backward](std::span<const DTensor> grads) {
      Grads result;
      result.push_back(f(grads.front()));
      return result;
    };
    if (tap.gradients) backward = tapped_backward(call.op, std::move(backward));
    record(call.op, {&input, 1}, {&output, 1}, std::move(backward),
           {.passes_partial = true, .twice = call.twice, .site = call.site});
  }
  return output;
}

DTensor shape_operand(const DTensor& like) {
  if (!like.mesh().defined()) return DTensor(Tensor::zeros({}, DType::kBool).expand(like.shape()));
  Layout layout = like.layout();
  for (int m = 0; m < layout.mesh().ndim(); ++m) {
    if (layout.placement(m).is_partial()) layout = layout.with(m, Replicate());
  }
  const auto& at = like.mesh().coordinate();
  if (!at) return DTensor(DType::kBool, layout, like.mesh());
  return DTensor(Tensor::zeros({}, DType::kBool).expand(layout.local_shape(*at)), layout,
                 like.mesh());
}

DTensor move_for_op(const DTensor& t, const Layout& to, MoveReason reason, std::string_view op,
                    CallSite site) {
  const bool silent = reason == MoveReason::kSilent;
  DTensor moved = redistribute(t, to,
                               MoveOptions{.op = silent ? "silent move" : "automatic move",
                                           .cause = silent ? Cause::kExplicit : Cause::kAutomatic,
                                           .of = op,
                                           .site = site});
  if (!silent) note_automatic_copy(t, moved, op);
  return moved;
}

void tell_other_ranks(std::span<const DTensor> tensors, std::string_view text) noexcept {
  for (const DTensor& x : tensors) {
    for (int m = 0; m < x.layout().mesh().ndim(); ++m) {
      if (x.layout().mesh().size(m) == 1 || x.layout().placement(m).is_replicate()) continue;
      try {
        x.mesh().root().abort("rank " + std::to_string(x.mesh().rank()) + ": " + std::string(text));
      } catch (...) {
        x.mesh().root().abort(text);  // no memory for more
      }
      return;
    }
  }
}

void check_same_dtype(std::string_view op,
                      std::initializer_list<std::reference_wrapper<const DTensor>> inputs) {
  const DTensor* first = nullptr;
  for (const DTensor& x : inputs) {
    if (!x.defined()) throw ArgumentError(std::string(op) + ": an operand is an empty handle");
    if (first && first->dtype() != x.dtype()) {
      throw ArgumentError(std::string(op) + ": operands are " +
                          std::string(name_of(first->dtype())) + to_string(first->shape()) +
                          " and " + std::string(name_of(x.dtype())) + to_string(x.shape()) +
                          "; cast one of them");
    }
    first = &x;
  }
}

void check_floating(std::string_view op, const DTensor& x) {
  if (!x.defined()) throw ArgumentError(std::string(op) + ": an operand is an empty handle");
  if (is_floating(x.dtype())) return;
  throw ArgumentError(std::string(op) + " takes floating tensors, got " +
                      std::string(name_of(x.dtype())) + to_string(x.shape()));
}

std::string letters_of(int ndim, char first) {
  std::string letters;
  for (int d = 0; d < ndim; ++d) letters += static_cast<char>(first + d);
  return letters;
}

}  // namespace dtensor::ops
