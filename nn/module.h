// Module: parameters, buffers and children under names, and hooks around forward.
// Single-device code; wrappers (nn::replicate, tp::parallelize_module, fsdp::fully_shard) change
// the placement of parameters in place and add hooks.
//
//   class Mlp : public nn::Module {
//    public:
//     Mlp() : up_(8, 32), down_(32, 8) {
//       add_child("up", up_);
//       add_child("down", down_);
//     }
//     std::string_view kind() const override { return "Mlp"; }
//
//    protected:
//     DTensor forward(const nn::Inputs& in) override { return down_(relu(up_(in[0]))); }
//
//    private:
//     nn::Linear up_, down_;
//   };

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::nn {

class Module;

// A handle; tied parameters are two handles of one.
class Parameter {
 public:
  Parameter() = default;
  // `units`: per tensor dim, how many elements a tensor-parallel cut must keep together (a head
  // group's rows); empty for all 1. ArgumentError for another number of units, or one below 1.
  explicit Parameter(DTensor value, std::vector<int64_t> units = {});

  bool defined() const { return state_ != nullptr; }
  // The full name from the topmost module (of a tied parameter the first one); without a module
  // empty.
  std::string name() const;
  DTensor& value() const;  // the parameter itself: placement, gradient
  // What forward computes with: the gathered or cast form where a wrapper has set one.
  // PlacementError where a wrapper gathers this parameter and is not inside its module's forward.
  const DTensor& use() const;
  void set_use(DTensor active) const;  // undefined goes back to value()
  int64_t unit(int dim) const;

  // For wrappers. Gives the value another layout on its mesh, in place and in memory of its own:
  // every handle sees it, requires_grad stays, the gradient is dropped.
  void place(const Layout& to) const;
  // Where its memory comes from from the next place() on, and that of what is kept beside it (an
  // optimizer's state); null: the Context's allocator.
  void set_memory(std::shared_ptr<Allocator> memory) const;
  const std::shared_ptr<Allocator>& memory() const;
  // From now on the parameter is gathered for the forward of one module: "layer \"a.b\"".
  void set_gathered_by(std::string who) const;
  const std::string& gathered_by() const;  // empty: by nobody

  const void* id() const { return state_.get(); }
  friend bool operator==(const Parameter& a, const Parameter& b) { return a.state_ == b.state_; }

 private:
  friend class Module;
  struct State;
  std::shared_ptr<State> state_;
};

// Tensors that are made while it is open have their memory where the parameter has its own.
class MemoryOf {
 public:
  explicit MemoryOf(const Parameter& p);

 private:
  ScopedSlot<CurrentAllocator> scope_;
};

using Inputs = std::vector<DTensor>;
using PreHook = std::function<Inputs(const Inputs&)>;
using PostHook = std::function<DTensor(const DTensor&)>;

class Module {
 public:
  Module() = default;
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Pre-hooks, forward, post-hooks. Under no wrapper just forward.
  template <class... T>
  DTensor operator()(const T&... inputs) {
    return call({inputs...});
  }
  DTensor call(Inputs inputs);

  virtual std::string_view kind() const = 0;  // "Linear", "Embedding", ...: what styles ask

  Module* parent() const { return parent_; }  // nullptr for the topmost
  std::string full_name() const;              // from the topmost module, which is ""
  // Name and module of this subtree, parents first, in the order of construction; "" is this one.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Names from this module; a tied parameter once, under its first name.
  std::vector<std::pair<std::string, Parameter>> named_parameters();
  std::vector<std::pair<std::string, Parameter>> own_parameters() const { return parameters_; }
  std::vector<Parameter> parameters();
  std::vector<std::pair<std::string, DTensor*>> named_buffers();
  // Every name of every parameter, also the further names of tied ones: name -> first name.
  std::vector<std::pair<std::string, std::string>> aliases();

  void add_pre_hook(PreHook hook) { pre_hooks_.push_back(std::move(hook)); }
  // In front of the hooks that are there: fully_shard's gather comes before a style's move.
  void add_pre_hook_first(PreHook hook) { pre_hooks_.insert(pre_hooks_.begin(), std::move(hook)); }
  void add_post_hook(PostHook hook) { post_hooks_.push_back(std::move(hook)); }
  // Runs last, also where a hook or forward threw: for what must not outlive the call.
  void add_cleanup_hook(std::function<void()> hook) { cleanup_hooks_.push_back(std::move(hook)); }
  // What a wrapper keeps with this module, under the wrapper's name; null at first.
  std::shared_ptr<void>& attached(std::string_view wrapper);

 protected:
  virtual DTensor forward(const Inputs& inputs) = 0;

  // Names are not empty and, within a module, used once: ArgumentError. Dots are allowed
  // ("layers.0"). A new parameter is zero, f32, on no mesh and requires a gradient.
  Parameter add_parameter(std::string name, const Shape& shape, std::vector<int64_t> units = {});
  // Another module's parameter under this name, in place of the one that is there.
  void tie_parameter(std::string name, const Parameter& other);
  DTensor& add_buffer(std::string name, DTensor value);
  // `child` is a member of this module, or owned by one. ArgumentError where it has a parent.
  void add_child(std::string name, Module& child);

 private:
  friend class Parameter;
  void clean_up() const;
  void check_new_name(const std::string& name) const;

  Module* parent_ = nullptr;
  std::string name_;  // in the parent
  std::vector<std::pair<std::string, Parameter>> parameters_;
  std::vector<std::pair<std::string, std::unique_ptr<DTensor>>> buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<PreHook> pre_hooks_;
  std::vector<PostHook> post_hooks_;
  std::vector<std::function<void()>> cleanup_hooks_;
  std::map<std::string, std::shared_ptr<void>, std::less<>> attached_;
};

// Puts every parameter and buffer that is on no mesh onto this one, R on every dim; those that lie
// on it stay. Data parallel training is this, with the batch cut. No message: every rank has the
// same values (init_normal, a checkpoint). PlacementError for another mesh.
void replicate(Module& module, const DeviceMesh& mesh);

// Fills every parameter that is floating: normal(0, std) keyed by (seed, full name, global index),
// so that the values do not depend on the mesh. Weights of a module whose kind ends in "Norm" are
// 1, parameters named "bias" 0, and so is "lora_b": an adapter starts as the identity.
void init_normal(Module& module, uint64_t seed, double std = 0.02);

}  // namespace dtensor::nn
