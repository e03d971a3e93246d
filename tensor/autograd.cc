#include "dtensor/tensor/autograd.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "dtensor/base/error.h"
#include "dtensor/base/small_memory.h"
#include "dtensor/tensor/backward.h"
#include "dtensor/tensor/dtensor_impl.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor {
namespace {

// Does this rank's part of `grad` count where P(sum) joins it? The value of an R one is at
// coordinate 0 of every mesh dim that the other is Partial on.
bool counts_here(const DTensor& grad, const DTensor& other) {
  const auto& at = grad.mesh().coordinate();
  for (int m = 0; at && m < grad.mesh().ndim(); ++m) {
    if (other.layout().placement(m).is_partial() && grad.layout().placement(m).is_replicate() &&
        (*at)[m] != 0) {
      return false;
    }
  }
  return true;
}

uint64_t version_of(const DTensor& t) {
  return t.has_local() ? t.local_tensor().storage()->version() : 0;
}

// A tensor that an op made has the gradient of its values as they were made.
void check_unwritten(const DTensor& t, std::string_view op) {
  const DTensor::Impl& impl = *t.impl();
  if (impl.node == nullptr || impl.made_version == version_of(t)) return;
  throw Error(
      std::string(op) + ": " + internal::describe(t) + ", made by " + std::string(impl.node->op()) +
      ", was written in place through another tensor of its memory, so that its graph is not "
      "that of its values; make it again after the write");
}

// Where values that want a gradient were written in place into memory that others see, and the
// version that made.
struct GraphWrites {
  struct Write {
    std::weak_ptr<Storage> storage;
    uint64_t version = 0;
  };
  std::unordered_map<const Storage*, Write> last;
};

void note_graph_write(const DTensor& t) {
  if (!t.has_local() || t.local_tensor().storage().use_count() == 1) return;
  auto& last = Context::current().slot<GraphWrites>().last;
  std::erase_if(last, [](const auto& entry) { return entry.second.storage.expired(); });
  const auto& storage = t.local_tensor().storage();
  last[storage.get()] = {storage, storage->version()};
}

// Was what a view without graph is a view of made part of a graph since?
bool is_stale_view(const DTensor& t) {
  const DTensor::Impl& impl = *t.impl();
  if (!impl.view || impl.node != nullptr || !t.has_local()) return false;
  const auto& last = Context::current().slot<GraphWrites>().last;
  const auto at = last.find(t.local_tensor().storage().get());
  return at != last.end() && !at->second.storage.expired() &&
         impl.made_version < at->second.version;
}

// The layout of a + b: Partial where one of them is.
Layout joined_layout(const DTensor& a, const DTensor& b) {
  Layout to = a.layout();
  bool fits = a.mesh() == b.mesh() && a.shape() == b.shape() && a.dtype() == b.dtype();
  for (int m = 0; fits && m < a.mesh().ndim(); ++m) {
    const Placement p = a.layout().placement(m);
    const Placement q = b.layout().placement(m);
    if (q.is_partial() && p.is_replicate()) {
      to = to.with(m, q);
    } else {
      fits = p == q || (p.is_partial() && q.is_replicate());
    }
  }
  if (!fits) {
    throw InternalError("two gradients of one tensor do not fit: " + internal::describe(a) +
                        " and " + internal::describe(b));
  }
  return to;
}

}  // namespace

bool grad_enabled() { return Context::current().slot<GradMode>().enabled; }

bool wants_gradient(std::string_view op, std::span<const DTensor> inputs) {
  bool wanted = false;
  for (const DTensor& in : inputs) {
    if (!in.defined()) continue;
    wanted = wanted || in.requires_grad();
    if (!in.impl()->view || !is_stale_view(in)) continue;
    throw Error(std::string(op) + ": " + internal::describe(in) +
                " is a view, and into the memory that it is a view of a value that wants a "
                "gradient was written since: the gradient would not pass through the view; make "
                "it again after the write, or use detach()");
  }
  return wanted;
}

void check_current(const DTensor& t, std::string_view op) { check_unwritten(t, op); }

Node::Node(std::string_view op, std::span<const DTensor> inputs, std::span<const DTensor> outputs,
           BackwardFn backward, const Options& options)
    : op_(op.substr(0, 63)),
      backward_(std::move(backward)),
      options_(options),
      sequence_(Context::current().slot<NodeClock>().next++) {
  for (const DTensor& in : inputs) {
    Edge& edge = inputs_.emplace_back();
    if (!in.defined() || !in.requires_grad()) continue;
    check_unwritten(in, op);
    edge.node = in.impl()->node;
    edge.output = in.impl()->output;
    if (edge.node == nullptr) edge.leaf = in;
  }
  for (const DTensor& out : outputs) outputs_.push_back({out.layout(), out.dtype(), {}});
}

// A long chain of nodes is taken apart in a loop: destructors that call each other would need a
// stack as deep as the graph.
Node::~Node() {
  InlineVector<std::shared_ptr<Node>, 4> chain;
  const auto take = [&chain](Node& node) {
    node.backward_ = nullptr;  // what it saved leads to the same nodes
    for (Edge& edge : node.inputs_) {
      if (edge.node.use_count() == 1) chain.push_back(std::move(edge.node));
      edge.node.reset();
    }
  };
  take(*this);
  while (!chain.empty()) {
    const std::shared_ptr<Node> node = std::move(chain.back());
    chain.pop_back();
    take(*node);
  }
}

void record(std::string_view op, std::span<const DTensor> inputs, std::span<DTensor> outputs,
            BackwardFn backward, const Node::Options& options) {
  if (!grad_enabled() || !wants_gradient(op, inputs)) return;
  for (DTensor& out : outputs) {
    if (out.requires_grad()) out = out.detach();  // a handle of its own
  }
  const auto node = make_small<Node>(op, inputs, outputs, std::move(backward), options);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    outputs[i].impl()->node = node;
    outputs[i].impl()->output = static_cast<int>(i);
    outputs[i].impl()->made_version = version_of(outputs[i]);
  }
}

DTensor accumulate(const DTensor& a, const DTensor& b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  const Layout to = joined_layout(a, b);
  if (!a.has_local()) return DTensor(a.dtype(), to, a.mesh());
  // x + -0.0 is x: where only one of the two has a value here, that is the sum.
  const bool left = counts_here(a, b);
  const bool right = counts_here(b, a);
  Tensor sum;
  if (left && right) {
    sum = Tensor::empty(a.local_tensor().shape(), a.dtype());
    kernels::add(a.local_tensor(), b.local_tensor(), sum);
  } else if (left || right) {
    sum = (left ? a : b).local_tensor();
  } else {
    sum = Tensor::full(a.local_tensor().shape(), -0.0, a.dtype());
  }
  DTensor out(sum, to, a.mesh());
  if (grad_enabled()) {
    const std::array<DTensor, 2> in = {a, b};
    record("accumulate", in, {&out, 1},
           [](std::span<const DTensor> g) {
             return Grads{g[0], g[0]};
           },
           {.passes_partial = true, .twice = true});
  }
  return out;
}

void add_grad_hook(const DTensor& t, GradHook hook) {
  internal_check(t.defined(), "a hook on an undefined tensor");
  if (!t.requires_grad()) {
    throw ArgumentError("add_grad_hook on " + internal::describe(t) +
                        ", which requires no grad: the hook would never run");
  }
  DTensor::Impl& impl = *t.impl();
  auto& hooks = impl.node == nullptr ? impl.hooks
                                     : impl.node->outputs_[static_cast<size_t>(impl.output)].hooks;
  hooks.push_back(std::move(hook));
}

DTensor with_backward_hook(const DTensor& t, std::function<void()> hook) {
  if (!grad_enabled() || !t.requires_grad()) return t;
  DTensor out = t.detach();
  record("backward_hook", {&t, 1}, {&out, 1},
         [hook = std::move(hook)](std::span<const DTensor> grads) {
           hook();
           return Grads(grads.begin(), grads.end());
         },
         {.passes_partial = true});
  return out;
}

void on_backward_end(std::function<void()> f) {
  internal_check(Context::current().slot<BackwardMode>().running,
                 "on_backward_end outside a backward pass");
  Context::current().slot<BackwardEnd>().callbacks.push_back(std::move(f));
}

Saved::Saved(const DTensor& t, std::string_view op)
    : tensor_(t.detach()), op_(op.substr(0, 31)), version_(version_of(t)) {
  if (!t.requires_grad()) return;
  node_ = t.impl()->node;
  if (node_ == nullptr) leaf_ = t;
  output_ = t.impl()->output;
}

Saved Saved::output(const DTensor& t, std::string_view op, int index) {
  Saved saved(t.detach(), op);
  saved.output_ = index;
  return saved;
}

DTensor Saved::value() const {
  if (tensor_.defined() && version_of(tensor_) != version_) {
    throw Error("backward of " + op_ + " needs a tensor, " + internal::describe(tensor_) +
                ", that was written in place since; write after backward, or into a copy");
  }
  if (!grad_enabled() || output_ < 0) return tensor_;
  if (leaf_.defined()) return leaf_;
  DTensor linked = tensor_.detach();
  linked.impl()->node =
      node_ != nullptr ? node_ : Context::current().slot<RunningNode>().recorded.lock();
  linked.impl()->output = output_;
  linked.impl()->made_version = version_;
  return linked;
}

void check_writable(const DTensor& t, std::string_view op) {
  if (!grad_enabled() || !t.requires_grad()) return;
  const char* what = t.is_leaf() ? "is a leaf that requires grad" : nullptr;
  // Views keep their base as the first edge of their node.
  const Node* node = t.impl()->node.get();
  while (node != nullptr && !node->inputs_.empty() && t.has_local()) {
    const DTensor& leaf = node->inputs_[0].leaf;
    if (leaf.defined() && leaf.has_local() &&
        leaf.local_tensor().storage() == t.local_tensor().storage()) {
      what = "is a view of a leaf that requires grad";
    }
    node = node->inputs_[0].node.get();
  }
  if (what == nullptr) return;
  throw ArgumentError(std::string(op) + ": " + internal::describe(t) + " " + what +
                      "; write under NoGrad, or into a copy");
}

void take_graph(const DTensor& t, const DTensor& made) {
  DTensor::Impl& impl = *t.impl();
  if (grad_enabled() && !(t.is_leaf() && impl.requires_grad)) {
    impl.node = made.defined() ? made.impl()->node : nullptr;
    impl.output = made.defined() ? made.impl()->output : 0;
    if (impl.node != nullptr) note_graph_write(t);
  }
  if (!is_stale_view(t)) impl.made_version = version_of(t);
}

}  // namespace dtensor
