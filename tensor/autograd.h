// Reverse-mode autograd over placements. A Node stands for an op that ran; its edges lead to the
// nodes that made its inputs, or to leaves. A gradient lies like its tensor: where the tensor is
// cut so is the gradient, where it is P(sum) the gradient is R, where it is R the gradient is R or
// P(sum). Backward runs nodes in the opposite order of their making, the same on every rank.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/base/call_site.h"
#include "dtensor/base/context.h"
#include "dtensor/base/inline_text.h"
#include "dtensor/base/inline_vector.h"
#include "dtensor/base/small_function.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor {

// The Context's slot: is a graph recorded?
struct GradMode {
  bool enabled = true;
};
class NoGrad {
 public:
  NoGrad() : scope_(GradMode{false}) {}

 private:
  ScopedSlot<GradMode> scope_;
};
bool grad_enabled();

// The Context's slot during a backward pass: how it was called.
struct BackwardMode {
  bool running = false;
  bool defer = false;
};

// Gradients of a node's outputs -> gradients of its inputs, one per input; undefined entries where
// there is none. Runs without recording, but in a backward with create_graph.
using Grads = InlineVector<DTensor, 4>;
using BackwardFn = SmallFunction<Grads(std::span<const DTensor> grads), 96>;

// Holds no output, so that a graph goes when the last tensor that it led to does.
class Node {
 public:
  struct Options {
    // A P(sum) gradient of the output goes through unresolved (an op with one differentiable linear
    // input, or one that resolves it itself); any other op gets it resolved to R by one all-reduce.
    bool passes_partial = false;
    // Call the backward function also where no gradient reached any output (all undefined).
    bool always = false;
    // The backward function is made of ops, and what it needs of the graph it has from Saved: it
    // may itself be recorded (create_graph).
    bool twice = false;
    CallSite site = {};
  };
  // Use record().
  Node(std::string_view op, std::span<const DTensor> inputs, std::span<const DTensor> outputs,
       BackwardFn backward, const Options& options);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  std::string_view op() const { return op_; }
  CallSite site() const { return options_.site; }  // of the op

 private:
  friend class BackwardPass;
  friend class Saved;
  friend void add_grad_hook(const DTensor& t, GradHook hook);
  friend void check_writable(const DTensor& t, std::string_view op);

  struct Edge {  // neither: no gradient is wanted
    std::shared_ptr<Node> node;
    int output = 0;
    DTensor leaf;
  };
  struct Output {
    Layout layout;
    DType dtype = DType::kFloat32;
    std::vector<GradHook> hooks;
  };
  InlineText<63> op_;
  InlineVector<Edge, 3> inputs_;
  InlineVector<Output, 1> outputs_;
  BackwardFn backward_;  // dropped once it ran, with the tensors that it saved
  Options options_;
  int64_t sequence_ = 0;  // later nodes run first in backward
};

// Does an input want a gradient? Error naming the op where one is a view without graph of memory
// that became part of a graph since, by a write in place: its gradient would be lost.
bool wants_gradient(std::string_view op, std::span<const DTensor> inputs);

// Error naming the op where `t` has a graph that is not that of its values, since another tensor of
// its memory was written in place.
void check_current(const DTensor& t, std::string_view op);

// Makes `outputs` the outputs of a new node, where gradients are enabled and an input wants one;
// outputs that are not floating get no gradient. `backward` must hold no output of the node but
// through Saved: that would be a cycle.
void record(std::string_view op, std::span<const DTensor> inputs, std::span<DTensor> outputs,
            BackwardFn backward, const Node::Options& options = {});

// a + b for gradients: an R one joins a P(sum) one at coordinate 0. No message.
DTensor accumulate(const DTensor& a, const DTensor& b);

// On a leaf or on a tensor that an op made. Hooks run in the order in which they were added; the
// gradient they see is complete, and may still be P(sum) where the tensor is R.
void add_grad_hook(const DTensor& t, GradHook hook);

// A tensor of the same value whose backward first runs `hook` (before the gradient goes on): the
// pre-backward of a module. `t` itself where it wants no gradient, or none is recorded.
DTensor with_backward_hook(const DTensor& t, std::function<void()> hook);

// Runs `f` when the backward pass that is running ends, well or not. InternalError outside one.
void on_backward_end(std::function<void()> f);

// Saves a tensor for backward: remembers its storage's version and, in value(), throws Error
// naming the op where it was written since.
class Saved {
 public:
  Saved() = default;
  // An input of the op; or another tensor, as a constant. An output is to be detached first.
  Saved(const DTensor& t, std::string_view op);
  // Output `index` of the op itself, while its backward function is made.
  static Saved output(const DTensor& t, std::string_view op, int index = 0);
  // Without graph; with it in a backward with create_graph.
  DTensor value() const;

 private:
  DTensor tensor_;
  InlineText<31> op_;
  uint64_t version_ = 0;
  // Where the tensor stands in the graph: made by a node, a leaf, or an output of the node that
  // saves it (which must not hold itself).
  std::shared_ptr<Node> node_;
  DTensor leaf_;
  int output_ = -1;
};

// For ops that write into a tensor. ArgumentError naming `op` where a graph is recorded and `t` is
// a leaf that requires grad, or a view of one.
void check_writable(const DTensor& t, std::string_view op);
// `t` was written with the value of `made` and is what made that, from now on; undefined: a
// constant. Without recording the graph stays as it is.
void take_graph(const DTensor& t, const DTensor& made);

}  // namespace dtensor
