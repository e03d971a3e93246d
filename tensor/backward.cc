#include "dtensor/tensor/backward.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

// What may be under way to leaves at one time: a Partial gradient's memory is held until its
// reduction ends.
constexpr int64_t kMostResolvingBytes = int64_t{64} << 20;

// Lets hooks see, and change, the complete gradient of a tensor that `op` made ("leaf").
DTensor run_hooks(const std::vector<GradHook>& hooks, DTensor grad, std::string_view op) {
  for (const GradHook& hook : hooks) {
    if (!grad.defined()) break;
    DTensor changed = hook(grad);
    if (changed.defined() && (changed.shape() != grad.shape() || changed.dtype() != grad.dtype() ||
                              !(changed.mesh() == grad.mesh()))) {
      throw ArgumentError("a gradient hook (" + std::string(op) + ") was given " +
                          internal::describe(grad) + " and gave " + internal::describe(changed) +
                          "; it may change values and placement only");
    }
    grad = std::move(changed);
  }
  return grad;
}

// A leaf's gradient is memory of its own: clipping and optimizers write into it.
DTensor own(const DTensor& grad) {
  if (!grad.has_local() || grad.requires_grad()) return grad;
  const Tensor& t = grad.local_tensor();
  const bool alone = t.storage().use_count() == 1 && grad.impl().use_count() == 1 &&
                     t.size_bytes() == t.storage()->size_bytes() && t.is_contiguous();
  return alone ? grad : DTensor(t.clone(), grad.layout(), grad.mesh());
}

// a += b, in the memory of `a` where nobody else can see it. `a` is as it was where this throws.
void add_into(DTensor& a, const DTensor& b) {
  const bool mine = !grad_enabled() && a.defined() && b.defined() && a.has_local() &&
                    a.impl().use_count() == 1 && a.local_tensor().storage().use_count() == 1 &&
                    a.local_tensor().is_contiguous() && a.layout() == b.layout();
  if (mine) {
    kernels::add(a.local_tensor(), b.local_tensor(), a.local_tensor());
  } else {
    a = accumulate(a, b);
  }
}

DTensor seed_of(const DTensor& loss) {
  const Layout to = internal::dual(loss.layout(), loss.layout(), false, "loss");
  if (!loss.has_local()) return DTensor(loss.dtype(), to, loss.mesh());
  return DTensor(Tensor::full(loss.local_tensor().shape(), 1.0, loss.dtype()), to, loss.mesh());
}

[[noreturn]] void throw_ran_before(std::string_view op) {
  throw Error("backward a second time through " + std::string(op) +
              ": its saved tensors are gone; call the first backward with "
              "{.retain_graph = true}");
}

// All of them, also after one that throws; the first error is the one to tell.
void run_callbacks() {
  auto& end = Context::current().slot<BackwardEnd>();
  std::exception_ptr error;
  while (!end.callbacks.empty()) {
    const auto callbacks = std::exchange(end.callbacks, {});
    for (const auto& f : callbacks) {
      try {
        f();
      } catch (...) {
        if (error == nullptr) error = std::current_exception();
      }
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace

Layout internal::dual(const Layout& grad, const Layout& tensor, bool passes, std::string_view op) {
  Layout want = tensor;
  for (int m = 0; m < tensor.mesh().ndim(); ++m) {
    const Placement p = tensor.placement(m);
    if (p.is_partial() && p.op() != PartialOp::kSum) {
      throw PlacementError("backward of " + std::string(op) +
                           ": the gradient of a tensor that is " + to_string(p) +
                           " on mesh dim \"" + tensor.mesh().name(m) +
                           "\" is not defined; redistribute it to R before the reduction");
    }
    if (p.is_partial()) want = want.with(m, Replicate());
    if (p.is_replicate() && passes && grad.placement(m).is_partial()) {
      want = want.with(m, grad.placement(m));
    }
  }
  return want;
}

DTensor internal::move_grad(const DTensor& grad, const Layout& to, std::string_view op,
                            std::string_view of, CallSite site) {
  if (grad.layout() == to) return grad;
  if (grad.requires_grad()) {
    // Like a redistribute: the identity of the whole value. What comes back is brought to the
    // source's cut by the pass.
    DTensor out = move_grad(grad.detach(), to, op, of, site);
    record(op, {&grad, 1}, {&out, 1}, [](std::span<const DTensor> g) { return Grads{g[0]}; },
           {.passes_partial = true, .twice = true, .site = site});
    return out;
  }
  // Another label for the same pieces.
  if (equal_boundaries(grad.layout(), to)) {
    return placed(local_or_none(grad), grad.dtype(), to, grad.mesh());
  }
  const MoveItem item{
      .local = local_or_none(grad), .from = grad.layout(), .to = to, .dtype = grad.dtype()};
  const MoveOptions options{.op = op, .cause = Cause::kAdjoint, .of = of, .site = site};
  return placed(move_local(grad.mesh(), item, options), grad.dtype(), to, grad.mesh());
}

void BackwardPass::run(const DTensor& loss) { run(loss, seed_of(loss)); }

void BackwardPass::run(const DTensor& y, const DTensor& grad) {
  const ScopedSlot<GradMode> recording(GradMode{options_.create_graph});
  if (Context::current().slot<BackwardMode>().running) return run_from(y, grad);
  const ScopedSlot<BackwardMode> mode(BackwardMode{.running = true, .defer = options_.defer});
  const ScopedSlot<BackwardEnd> end(BackwardEnd{});
  try {
    run_from(y, grad);
  } catch (...) {
    try {
      run_callbacks();
    } catch (...) {  // the first error is the one to tell
    }
    throw;
  }
  run_callbacks();
}

void BackwardPass::stop_at_older_nodes() {
  oldest_ = Context::current().slot<NodeClock>().next;
  outer_ = Context::current().slot<RunningPass>().pass;
  internal_check(outer_ != nullptr, "a pass that stops at older nodes, outside another");
}

void BackwardPass::run_from(const DTensor& y, const DTensor& grad) {
  const ScopedSlot<RunningPass> running(RunningPass{this});
  try {
    run_all(y, grad);
  } catch (...) {
    leave_resolving();
    throw;
  }
}

void BackwardPass::run_all(const DTensor& y, const DTensor& grad) {
  if (y.is_leaf()) {
    finish_leaf({y, 0, grad});
  } else if (is_older(*y.impl()->node)) {
    outer_->take(y.impl()->node, y.impl()->output, grad);
  } else {
    const auto& root = y.impl()->node;
    count_edges(root);
    pending(root).grads[static_cast<size_t>(y.impl()->output)] = grad;
    ready_.emplace(root->sequence_, root.get());
    run_ready();
  }
  finish_resolving(0);
}

BackwardPass::PendingNode& BackwardPass::pending(const std::shared_ptr<Node>& node) {
  PendingNode& state = nodes_[node.get()];
  if (state.node == nullptr) {
    state.node = node;
    state.grads.resize(node->outputs_.size());
  }
  return state;
}

// Counts for every node and leaf how many edges lead to it from nodes that the loss depends on.
void BackwardPass::count_edges(const std::shared_ptr<Node>& root) {
  InlineVector<const Node*, 16> stack{pending(root).node.get()};
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node->backward_ == nullptr) throw_ran_before(node->op_);
    for (const Node::Edge& edge : node->inputs_) {
      if (edge.node != nullptr) {
        if (is_older(*edge.node)) continue;
        ready_.erase(edge.node->sequence_);  // of take(): it waits for one more
        if (nodes_.find(edge.node.get()) == nodes_.end()) stack.push_back(edge.node.get());
        ++pending(edge.node).missing;
      } else if (edge.leaf.defined()) {
        PendingLeaf& state = leaves_[edge.leaf.impl().get()];
        state.leaf = edge.leaf;
        ++state.missing;
      }
    }
  }
}

// All that this pass may still run is older than the node that runs now, and so are the inputs of
// `node`: none of them ran yet.
void BackwardPass::take(const std::shared_ptr<Node>& node, int output, const DTensor& grad) {
  if (is_older(*node)) return outer_->take(node, output, grad);
  if (nodes_.find(node.get()) == nodes_.end()) {
    count_edges(node);
    ready_.emplace(node->sequence_, node.get());
  }
  add_into(pending(node).grads[static_cast<size_t>(output)], grad);
}

void BackwardPass::run_ready() {
  while (!ready_.empty()) {
    const auto latest = std::prev(ready_.end());
    auto state = nodes_.extract(latest->second);
    ready_.erase(latest);
    run_node(std::move(state.mapped()));
  }
}

void BackwardPass::check_twice(const Node& node) const {
  if (!options_.create_graph || node.options_.twice) return;
  throw Error("backward with create_graph through " + node.op_ +
              ": its backward cannot be recorded; docs/autograd.md lists the ops whose can");
}

void BackwardPass::run_node(PendingNode state) {
  Node& node = *state.node;
  bool any = node.options_.always;
  for (size_t i = 0; i < state.grads.size(); ++i) {
    DTensor& grad = state.grads[i];
    const Node::Output& output = node.outputs_[i];
    grad = run_hooks(output.hooks, std::move(grad), node.op_);
    if (!grad.defined()) continue;
    any = true;
    const Layout to =
        internal::dual(grad.layout(), output.layout, node.options_.passes_partial, node.op_);
    grad = internal::move_grad(grad, to, "resolve", node.op_, node.options_.site);
  }
  Grads grads(node.inputs_.size());
  if (any) {
    check_twice(node);
    if (node.backward_ == nullptr) throw_ran_before(node.op_);  // since it was counted
    const ScopedSlot<RunningNode> running(options_.create_graph ? RunningNode{&node, state.node}
                                                                : RunningNode{&node});
    grads = node.backward_({state.grads.data(), state.grads.size()});
    internal_check(grads.size() == node.inputs_.size(),
                   "a backward function gave another number of gradients than inputs");
  }
  state.grads.clear();
  if (!options_.retain_graph && !options_.create_graph) node.backward_ = nullptr;
  for (size_t i = 0; i < grads.size(); ++i) {
    deliver(node, node.inputs_[i], std::move(grads[i]));
  }
}

// Adds a gradient to what has come for the edge's target, which is ready after the last one.
void BackwardPass::deliver(const Node& from, const Node::Edge& edge, DTensor grad) {
  const bool to_node = edge.node != nullptr;
  if (!to_node && !edge.leaf.defined()) return;
  const Layout& layout =
      to_node ? edge.node->outputs_[static_cast<size_t>(edge.output)].layout : edge.leaf.layout();
  const DType dtype =
      to_node ? edge.node->outputs_[static_cast<size_t>(edge.output)].dtype : edge.leaf.dtype();
  if (grad.defined()) {
    if (grad.shape() != layout.shape() || grad.dtype() != dtype ||
        !(grad.layout().mesh() == layout.mesh())) {
      throw InternalError("backward of " + from.op_ + " gave " + internal::describe(grad) +
                          " as the gradient of a " + std::string(name_of(dtype)) +
                          to_string(layout.shape()) + " " + to_string(layout.spec()));
    }
    const Layout to = internal::dual(grad.layout(), layout, true, from.op_);
    grad = internal::move_grad(grad, to, "conform", from.op_, from.options_.site);
  }
  if (to_node && is_older(*edge.node)) {
    if (grad.defined()) outer_->take(edge.node, edge.output, grad);
    return;
  }
  if (to_node) {
    PendingNode& state = nodes_.at(edge.node.get());
    DTensor& slot = state.grads[static_cast<size_t>(edge.output)];
    add_into(slot, grad);
    if (--state.missing == 0) ready_.emplace(edge.node->sequence_, edge.node.get());
    return;
  }
  PendingLeaf& state = leaves_.at(edge.leaf.impl().get());
  add_into(state.grad, grad);
  grad = DTensor();
  if (--state.missing > 0) return;
  auto complete = leaves_.extract(edge.leaf.impl().get());
  finish_leaf(std::move(complete.mapped()));
}

// The leaf rule: the gradient is resolved to the leaf's own placement, unless deferred. What was
// left Partial by an earlier backward joins first, so that it is resolved once; where that throws
// the leaf keeps it.
void BackwardPass::finish_leaf(PendingLeaf state) {
  DTensor::Impl& leaf = *state.leaf.impl();
  DTensor grad = run_hooks(leaf.hooks, std::exchange(state.grad, {}), "leaf");
  if (!grad.defined()) return;
  const bool passes = options_.defer || std::ranges::count(partial_, &leaf) > 0;
  const bool joins = leaf.grad.defined() && (options_.defer || leaf.grad.spec().has_partial());
  if (joins) {
    add_into(leaf.grad, grad);
    grad = std::exchange(leaf.grad, {});
  }
  try {
    resolve_leaf(state.leaf, grad, internal::dual(grad.layout(), leaf.layout, passes, "leaf"));
  } catch (...) {
    if (joins && !leaf.grad.defined()) leaf.grad = grad;
    throw;
  }
  grad = DTensor();  // what is under way holds it
  finish_resolving(kMostResolvingBytes);
}

// Brings a leaf's gradient `to` its place, and adds it to what is there.
void BackwardPass::resolve_leaf(const DTensor& t, DTensor& grad, const Layout& to) {
  DTensor::Impl& leaf = *t.impl();
  if (grad.requires_grad()) {
    leaf.grad = accumulate(leaf.grad, internal::move_grad(grad, to, "leaf", "leaf", options_.site));
    return;
  }
  if (equal_boundaries(grad.layout(), to) || !grad.has_local()) {
    if (!grad.has_local()) grad = DTensor(grad.dtype(), to, leaf.mesh);
    if (!(grad.layout() == to)) grad = DTensor(grad.local_tensor(), to, leaf.mesh);
    if (leaf.grad.defined()) {
      add_into(leaf.grad, grad);
    } else {
      leaf.grad = own(grad);
    }
    return;
  }
  // Its reduction goes on while earlier nodes run.
  std::vector<MoveItem> items;
  items.push_back({.local = grad.local_tensor(), .from = grad.layout(), .to = to});
  const int64_t bytes = grad.local_tensor().size_bytes() + 1;  // an empty piece counts as well
  const MoveOptions options{
      .op = "leaf", .cause = Cause::kAdjoint, .of = "leaf", .site = options_.site};
  Move move = Move::start(leaf.mesh, std::move(items), options);
  resolving_.push_back({t, to, grad, std::move(move), bytes});
  resolving_bytes_ += bytes;
}

// Waits for the oldest until no more than `most_bytes` are under way: a bound that does not depend
// on timing, so that every rank goes on in the same order. A gradient joins what the leaf has then:
// a pass inside this one (recomputed) may have brought some in between.
void BackwardPass::finish_resolving(int64_t most_bytes) {
  while (!resolving_.empty() && resolving_bytes_ > most_bytes) {
    Resolving& r = resolving_.front();
    const DTensor grad(std::move(r.move.finish()[0]), r.to, r.leaf.mesh());
    DTensor& sum = r.leaf.impl()->grad;
    if (sum.defined()) {
      add_into(sum, grad);
    } else {
      // Where one rank holds all parts the move had nothing to do, and gave what it was given.
      sum = own(grad);
    }
    resolving_bytes_ -= r.bytes;
    resolving_.pop_front();
  }
}

// After an error: what is under way ends as it would have, on every rank; what cannot stays on its
// leaf as it was, Partial, for the next backward to resolve.
void BackwardPass::leave_resolving() noexcept {
  while (!resolving_.empty()) {
    try {
      finish_resolving(0);
    } catch (...) {
      Resolving r = std::move(resolving_.front());
      resolving_bytes_ -= r.bytes;
      resolving_.pop_front();
      try {
        add_into(r.leaf.impl()->grad, r.partial);
      } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the first error is told
      }
    }
  }
}

void DTensor::backward(const BackwardOptions& options) {
  if (numel() != 1 || !requires_grad()) {
    throw ArgumentError("backward from " + internal::describe(*this) +
                        (requires_grad() ? ": it has not one element; sum it first"
                                         : ", which depends on no tensor that requires grad"));
  }
  check_current(*this, "backward");
  BackwardPass(options).run(*this);
}

}  // namespace dtensor
