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
// there is none. Runs without recording.
using BackwardFn = std::function<std::vector<DTensor>(std::span<const DTensor> grads)>;

// Runs once a gradient is complete in a backward pass, before it goes on. What it returns goes on
// instead; undefined: nothing does.
using GradHook = std::function<DTensor(const DTensor& grad)>;

// Holds no output, so that a graph goes when the last tensor that it led to does.
class Node {
 public:
  struct Options {
    // A P(sum) gradient of the output goes through unresolved (an op with one differentiable linear
    // input, or one that resolves it itself); any other op gets it resolved to R by one all-reduce.
    bool passes_partial = false;
    // Call the backward function also where no gradient reached any output (all undefined).
    bool always = false;
    CallSite site = {};
  };
  // Use record().
  Node(std::string_view op, std::span<const DTensor> inputs, std::span<const DTensor> outputs,
       BackwardFn backward, const Options& options);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  std::string_view op() const { return op_; }

 private:
  friend class BackwardPass;
  friend void add_grad_hook(const DTensor& t, GradHook hook);

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
  std::string op_;
  std::vector<Edge> inputs_;
  std::vector<Output> outputs_;
  BackwardFn backward_;  // dropped once it ran, with the tensors that it saved
  Options options_;
  int64_t sequence_ = 0;  // later nodes run first in backward
};

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
  Saved(const DTensor& t, std::string_view op);
  DTensor value() const;  // without graph

 private:
  DTensor tensor_;
  std::string op_;
  uint64_t version_ = 0;
};

}  // namespace dtensor
