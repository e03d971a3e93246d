#include "dtensor/ops/dispatch.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "dtensor/ops/automatic_copy.h"
#include "dtensor/ops/policy.h"
#include "dtensor/placement/apply_rule.h"
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

// The mesh that the inputs lie on. A scalar on no mesh counts as R.
DeviceMesh common_mesh(const Rule& rule, std::span<const DTensor> inputs) {
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
  if (!first) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].mesh().defined()) continue;
    if (inputs[i].ndim() == 0 && !inputs[i].requires_grad()) continue;
    const std::string name = rule.name(static_cast<int>(i));
    throw PlacementError(rule.op + ": " + name + " " + to_string(inputs[i].shape()) +
                         " is on no mesh, " + rule.name(at) + " on " +
                         to_string(first->mesh().layout()) + "; use replicate(" + name + ", mesh)");
  }
  return first->mesh();
}

// What rules gave for the layouts of a call, per rank. An entry keeps the layouts that it was made
// for, so that the identity of a Spec cannot be taken by another one.
class RuleCache {
 public:
  const RuleResult* find(const Rule& rule, std::span<const Layout> in, bool allow, uint64_t hash) {
    const auto [begin, end] = entries_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const Entry& e = it->second;
      if (e.allow == allow && e.op == rule.op && e.letters == rule.letters &&
          e.uncut == rule.uncut && e.made == rule.made && std::ranges::equal(e.in, in)) {
        return &e.result;
      }
    }
    return nullptr;
  }
  const RuleResult& keep(const Rule& rule, std::span<const Layout> in, bool allow, uint64_t hash,
                         RuleResult result) {
    constexpr size_t kMost = 8192;
    if (entries_.size() >= kMost) entries_.clear();
    Entry entry{rule.op, rule.letters,     rule.uncut, rule.made, {in.begin(), in.end()},
                allow,   std::move(result)};
    return entries_.emplace(hash, std::move(entry))->second.result;
  }

  static uint64_t hash_of(const Rule& rule, std::span<const Layout> in) {
    uint64_t h = std::hash<std::string>{}(rule.letters) ^ (std::hash<std::string>{}(rule.op) << 1);
    const auto mix = [&h](uint64_t v) { h = (h ^ v) * 0x9e3779b97f4a7c15ULL + (h >> 29); };
    for (const MadeLetter& made : rule.made) mix(static_cast<uint64_t>(made.size));
    for (const Layout& x : in) {
      mix(reinterpret_cast<uintptr_t>(x.spec().id()));
      for (const int64_t n : x.shape()) mix(static_cast<uint64_t>(n));
    }
    return h;
  }

 private:
  struct Entry {
    std::string op;
    std::string letters;
    std::string uncut;
    std::vector<MadeLetter> made;
    std::vector<Layout> in;
    bool allow = false;
    RuleResult result;
  };
  std::unordered_multimap<uint64_t, Entry> entries_;
};

std::vector<Layout> layouts_of(std::span<const DTensor> inputs) {
  std::vector<Layout> layouts;
  layouts.reserve(inputs.size());
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

void make_fix(const Fix& fix, std::vector<DTensor>& inputs, std::string_view op, CallSite site) {
  const std::vector<DTensor> before = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (fix.in[i] == before[i].layout()) continue;
    for (size_t j = 0; j < i; ++j) {
      if (before[j].impl() == before[i].impl() && fix.in[j] == fix.in[i]) inputs[i] = inputs[j];
    }
    if (inputs[i].layout() == fix.in[i]) continue;
    inputs[i] = move_for_op(inputs[i], fix.in[i], MoveReason::kAutomatic, op, site);
  }
}

// Brings inputs to a row; under kAuto by the cheapest fix where none fits.
RuleResult place(const OpCall& call, std::vector<DTensor>& inputs) {
  std::vector<Layout> in = layouts_of(inputs);
  auto& cache = Context::current().slot<RuleCache>();
  const uint64_t hash = RuleCache::hash_of(call.rule, in);
  const bool tapped = Context::current().slot<RuleTap>().see != nullptr;
  if (const RuleResult* hit = cache.find(call.rule, in, call.allow_communicating, hash)) {
    if (!tapped) return *hit;
  }
  std::vector<DType> dtypes;
  for (const DTensor& x : inputs) dtypes.push_back(x.dtype());
  const RuleOptions options{call.allow_communicating, dtypes};
  if (Context::current().slot<CurrentPolicy>().policy == RedistributePolicy::kAuto) {
    RuleMatch match = match_rule(call.rule, in, call.allow_communicating);
    if (!match.mismatch) return match.result;
    const std::vector<Fix> found = fixes(call.rule, in, options);
    if (const Fix* fix = cheapest(found, inputs)) {
      make_fix(*fix, inputs, call.rule.op, call.site);
      in = layouts_of(inputs);
      return apply_rule(call.rule, in, options);
    }
  }
  RuleResult result = apply_rule(call.rule, in, options);
  if (tapped) return result;  // perhaps a changed rule
  return cache.keep(call.rule, in, call.allow_communicating, hash, std::move(result));
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
  return wanting == 1 && std::ranges::any_of(rule.linear, [&](const std::vector<int>& set) {
           return std::ranges::count(set, which) > 0;
         });
}

void record_call(const OpCall& call, std::span<const DTensor> inputs, std::span<DTensor> outputs) {
  if (!call.backward || !grad_enabled()) return;
  if (std::ranges::none_of(inputs, [](const DTensor& x) { return x.requires_grad(); })) return;
  record(call.rule.op, inputs, outputs, call.backward(inputs, outputs),
         {.passes_partial = passes_partial(call.rule, inputs), .site = call.site});
}

std::vector<Tensor> run_kernel(const OpCall& call, std::span<const DTensor> inputs,
                               const Coordinate& at) {
  std::vector<Tensor> locals;
  locals.reserve(inputs.size());
  for (const DTensor& x : inputs) locals.push_back(x.local_tensor());
  return call.kernel(KernelInfo(call.rule, inputs, at), locals);
}

std::vector<DTensor> run_on_no_mesh(const OpCall& call, std::span<const DTensor> inputs) {
  std::vector<Shape> shapes;
  for (const DTensor& x : inputs) shapes.push_back(x.shape());
  check_sizes(call.rule, parse_letters(call.rule), shapes);
  std::vector<DTensor> outputs;
  for (Tensor& y : run_kernel(call, inputs, Coordinate{})) outputs.emplace_back(std::move(y));
  record_call(call, inputs, outputs);
  return outputs;
}

std::vector<DTensor> run_seen(const OpCall& call, std::span<const DTensor> inputs) {
  check_defined(call.rule, inputs);
  const DeviceMesh mesh = common_mesh(call.rule, inputs);
  if (!mesh.defined()) return run_on_no_mesh(call, inputs);

  std::vector<DTensor> placed(inputs.begin(), inputs.end());
  for (DTensor& x : placed) {
    if (!x.mesh().defined()) x = replicate(x, mesh);
  }
  const RuleResult result = place(call, placed);
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].layout() == result.in[i]) continue;
    placed[i] = move_for_op(placed[i], result.in[i], MoveReason::kSilent, call.rule.op, call.site);
  }

  std::vector<DTensor> outputs;
  if (mesh.coordinate()) {
    std::vector<Tensor> locals = run_kernel(call, placed, *mesh.coordinate());
    for (size_t o = 0; o < locals.size(); ++o) {
      outputs.emplace_back(std::move(locals[o]), result.out[o], mesh);
    }
  } else {
    const DType dtype = call.dtype.value_or(placed.front().dtype());
    for (const Layout& out : result.out) {
      const bool second = outputs.size() == 1;
      outputs.emplace_back(second ? call.second_dtype.value_or(dtype) : dtype, out, mesh);
    }
  }
  record_call(call, placed, outputs);
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

std::vector<DTensor> run(const OpCall& call, std::span<const DTensor> inputs) {
  if (const RuleTap& tap = Context::current().slot<RuleTap>(); tap.see) {
    Rule seen = call.rule;
    tap.see(seen);
    return run_seen({.rule = seen,
                     .kernel = call.kernel,
                     .backward = call.backward,
                     .allow_communicating = call.allow_communicating,
                     .dtype = call.dtype,
                     .second_dtype = call.second_dtype,
                     .site = call.site},
                    inputs);
  }
  return run_seen(call, inputs);
}

DTensor run1(const OpCall& call, std::initializer_list<DTensor> inputs) {
  return run(call, {inputs.begin(), inputs.size()}).front();
}

DTensor run_placed(const PlacedCall& call, const DTensor& input) {
  DTensor output;
  if (!input.mesh().defined()) {
    output = DTensor(call.kernel(input.local_tensor(), call.out.shape()));
  } else if (const auto& at = input.mesh().coordinate(); at) {
    output = DTensor(call.kernel(input.local_tensor(), call.out.local_shape(*at)), call.out,
                     input.mesh());
  } else {
    output = DTensor(input.dtype(), call.out, input.mesh());
  }
  if (call.backward && grad_enabled() && input.requires_grad()) {
    const auto backward = [f = call.backward](std::span<const DTensor> grads) {
      return std::vector<DTensor>{f(grads.front())};
    };
    record(call.op, {&input, 1}, {&output, 1}, backward,
           {.passes_partial = true, .site = call.site});
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

void check_same_dtype(std::string_view op, std::initializer_list<DTensor> inputs) {
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
