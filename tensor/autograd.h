// Reverse-mode autograd over placements (design: gradients follow placements).
// A Node stands for an op that ran; edges lead to the nodes of its inputs, or to leaves.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
// there is none. Runs without recording. A gradient's layout: cut dims as the input's; where the
// input is R it may be R or P(sum); where the input is P(sum) it is R.
using BackwardFn = std::function<std::vector<DTensor>(std::span<const DTensor> grads)>;

class Node {
 public:
  // `passes_partial`: a P(sum) gradient of the output goes through unresolved (an op with one
  // differentiable linear input); for any other op it is resolved to R first by one all-reduce.
  struct Options {
    bool passes_partial = false;
    CallSite site = {};
  };
  Node(std::string_view op, std::vector<DTensor> inputs, BackwardFn backward, Options options);
  std::string_view op() const { return op_; }

  std::string op_;
  std::vector<DTensor> inputs;  // undefined where no gradient is wanted
  BackwardFn backward;          // dropped once it ran, with the tensors that it saved
  Options options;
  int64_t sequence = 0;  // later nodes run first in backward
  int outputs = 0;
};

// Makes `outputs` the outputs of a new node, where gradients are enabled and an input wants one.
void record(std::string_view op, std::span<const DTensor> inputs, std::span<DTensor> outputs,
            BackwardFn backward, Node::Options options = {});

// a + b for gradients: an R one joins a P(sum) one at coordinate 0.
DTensor accumulate(const DTensor& a, const DTensor& b);

// Runs once `t`'s gradient is complete in a backward pass, and may replace it.
using GradHook = std::function<DTensor(const DTensor& grad)>;
void add_grad_hook(const DTensor& t, GradHook hook);

// A tensor of the same value whose backward first runs `hook` (before the gradient goes on): the
// pre-backward of a module.
DTensor with_backward_hook(const DTensor& t, std::function<void()> hook);

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
