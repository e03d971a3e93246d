#include "dtensor/ops/in_place.h"

#include <string>
#include <utility>

#include "dtensor/ops/automatic_copy.h"
#include "dtensor/ops/dispatch.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

std::string text_of(const DTensor& t) {
  return std::string(name_of(t.dtype())) + to_string(t.shape()) +
         (t.mesh().defined() ? " " + to_string(t.spec()) : "");
}

// Whether `a` may be written now.
void check_target(std::string_view op, const DTensor& a) {
  if (!a.defined()) throw ArgumentError(std::string(op) + ": an operand is an empty handle");
  check_writable(a, op);
  if (const std::string moved = ops::automatic_copy_for(a); !moved.empty()) {
    throw PlacementError(std::string(op) + ": " + text_of(a) + " lies in memory that a move for " +
                         moved +
                         " made; what is written there would not reach the tensor that was "
                         "moved. Redistribute that one first");
  }
  if (a.impl()->borrowed) {
    throw PlacementError(std::string(op) + ": " + text_of(a) +
                         " lies in the memory of a tensor that is placed otherwise, which a "
                         "redistribute without messages made it of; what is written there would "
                         "reach some ranks of that one. Write into a copy, mul(a, 1.0), or into "
                         "that tensor before it is redistributed");
  }
  if (!a.has_local()) return;
  const Tensor& t = a.local_tensor();
  for (int d = 0; d < t.ndim(); ++d) {
    if (t.strides()[d] != 0 || t.size(d) <= 1) continue;
    throw ArgumentError(std::string(op) + ": " + text_of(a) + " repeats its elements on dim " +
                        std::to_string(d) + " (expand); write into a copy");
  }
}

// from + 0 a: the rule of a copy, whose first operand gives the placement.
DTensor placed_like(const DTensor& a, const DTensor& from, CallSite site) {
  const std::string l = ops::letters_of(a.ndim());
  const Rule rule{
      .op = "copy_", .letters = l + "," + l + "->" + l, .linear = {{0, 1}}, .names = {"a", "from"}};
  const ops::Kernel kernel = [](const ops::KernelInfo&, ops::Pieces in) {
    return ops::Tensors{in[1]};
  };
  const auto backward = [](std::span<const DTensor>, std::span<const DTensor>) -> BackwardFn {
    return [](std::span<const DTensor> g) { return Grads{DTensor(), g[0]}; };
  };
  return ops::run1({.rule = rule, .kernel = kernel, .backward = backward, .site = site}, {a, from});
}

// Copies what may lie in the same memory, in another order as well.
void write(const Tensor& from, const Tensor& to) {
  const bool shared = from.storage() == to.storage();
  if (shared && from.offset() == to.offset() && from.strides() == to.strides()) {
    to.storage()->bump_version();
    return;
  }
  kernels::copy(shared ? from.clone() : from, to);
}

}  // namespace

void ops::in_place(std::string_view op, const DTensor& a, const std::function<DTensor()>& f) {
  check_target(op, a);
  DTensor result;
  {
    const ScopedSlot<FixedOperand> fixed(FixedOperand{.tensor = a, .op = op});
    result = f();
  }
  if (result.dtype() != a.dtype() || !(result.layout() == a.layout())) {
    throw PlacementError(std::string(op) + ": the result is " + text_of(result) +
                         ", written into " + text_of(a) +
                         ", which is not moved; use the op that gives a new tensor");
  }
  if (grad_enabled() && result.requires_grad() && a.is_leaf() && a.impl()->view) {
    throw ArgumentError(std::string(op) + ": " + text_of(a) +
                        " is a view of a tensor without graph: what is written there wants a "
                        "gradient, which would not pass through that tensor. Make the whole by "
                        "cat or where, or write under NoGrad");
  }
  if (a.has_local()) write(result.local_tensor(), a.local_tensor());
  take_graph(a, result);
}

void add_(const DTensor& a, const DTensor& b, CallSite site) {
  ops::in_place("add_", a, [&] { return add(a, b, site); });
}
void add_(const DTensor& a, double b, CallSite site) {
  ops::in_place("add_", a, [&] { return add(a, b, site); });
}
void sub_(const DTensor& a, const DTensor& b, CallSite site) {
  ops::in_place("sub_", a, [&] { return sub(a, b, site); });
}
void sub_(const DTensor& a, double b, CallSite site) {
  ops::in_place("sub_", a, [&] { return sub(a, b, site); });
}
void mul_(const DTensor& a, const DTensor& b, CallSite site) {
  ops::in_place("mul_", a, [&] { return mul(a, b, site); });
}
void mul_(const DTensor& a, double b, CallSite site) {
  ops::in_place("mul_", a, [&] { return mul(a, b, site); });
}

void div_(const DTensor& a, const DTensor& b, CallSite site) {
  ops::in_place("div_", a, [&] { return div(a, b, site); });
}
void div_(const DTensor& a, double b, CallSite site) {
  ops::in_place("div_", a, [&] { return div(a, b, site); });
}
void clamp_(const DTensor& a, const ClampOptions& range, CallSite site) {
  ops::in_place("clamp_", a, [&] { return clamp(a, range, site); });
}
void masked_fill_(const DTensor& a, const DTensor& mask, double number, CallSite site) {
  ops::in_place("masked_fill_", a, [&] { return masked_fill(a, mask, number, site); });
}

void fill_(const DTensor& a, double value) {
  check_target("fill_", a);
  check_range("fill_", a.dtype(), value);
  fill_value(a, value);
  take_graph(a, DTensor());
}

void zero_(const DTensor& a) { fill_(a, 0.0); }

void copy_(const DTensor& a, const DTensor& from, CallSite site) {
  ops::check_same_dtype("copy_", {a, from});
  ops::in_place("copy_", a, [&] {
    const bool as_it_is = from.layout() == a.layout() && from.mesh() == a.mesh();
    return as_it_is && !from.requires_grad() ? from : placed_like(a, from, site);
  });
}

}  // namespace dtensor
