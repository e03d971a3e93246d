// Module: parameters, buffers and children under names, and hooks around forward.
// Single-device code; wrappers (nn::replicate, tp::parallelize_module, fsdp::fully_shard) change
// the placement of parameters in place and add hooks.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/dtensor.h"

namespace dtensor::nn {

// A handle; tied parameters are two handles of one.
class Parameter {
 public:
  Parameter() = default;
  // `units`: per tensor dim, how many elements a tensor-parallel cut must keep together (a head
  // group's rows); empty for all 1.
  Parameter(DTensor value, std::vector<int64_t> units = {});

  bool defined() const { return state_ != nullptr; }
  const std::string& name() const;  // full name from the root, once it has one
  DTensor& value() const;           // the parameter itself: placement, gradient
  // What forward computes with: the gathered or cast form where a wrapper has set one.
  const DTensor& use() const;
  void set_use(DTensor active) const;  // undefined goes back to value()
  int64_t unit(int dim) const;
  const void* id() const { return state_.get(); }
  friend bool operator==(const Parameter& a, const Parameter& b) { return a.state_ == b.state_; }

 private:
  friend class Module;
  struct State;
  std::shared_ptr<State> state_;
};

using Inputs = std::vector<DTensor>;
using PreHook = std::function<Inputs(const Inputs&)>;
using PostHook = std::function<DTensor(const DTensor&)>;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Pre-hooks, forward, post-hooks. Under no wrapper just forward.
  template <class... T>
  DTensor operator()(const T&... inputs) {
    return call({inputs...});
  }
  DTensor call(Inputs inputs);

  virtual std::string_view kind() const = 0;  // "Linear", "Embedding", ...: what styles ask

  // Name and module of this subtree, parents first, in the order of construction; "" is this one.
  std::vector<std::pair<std::string, Module*>> named_modules();
  // Names from this module; a tied parameter once, under its first name.
  std::vector<std::pair<std::string, Parameter>> named_parameters();
  std::vector<std::pair<std::string, Parameter>> own_parameters();
  std::vector<Parameter> parameters();
  std::vector<std::pair<std::string, DTensor*>> named_buffers();
  // Every name of every parameter, also the further names of tied ones: name -> first name.
  std::vector<std::pair<std::string, std::string>> aliases();

  void add_pre_hook(PreHook hook) { pre_hooks_.push_back(std::move(hook)); }
  // In front of the hooks that are there: fully_shard's gather comes before a style's move.
  void add_pre_hook_first(PreHook hook) { pre_hooks_.insert(pre_hooks_.begin(), std::move(hook)); }
  void add_post_hook(PostHook hook) { post_hooks_.push_back(std::move(hook)); }

 protected:
  virtual DTensor forward(const Inputs& inputs) = 0;

  Parameter add_parameter(std::string name, const Shape& shape, std::vector<int64_t> units = {});
  void tie_parameter(std::string name, const Parameter& other);
  DTensor& add_buffer(std::string name, DTensor value);
  // `child` outlives this module (a member of it).
  void add_child(std::string name, Module& child);

 private:
  std::vector<std::pair<std::string, Parameter>> parameters_;
  std::vector<std::pair<std::string, std::unique_ptr<DTensor>>> buffers_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<PreHook> pre_hooks_;
  std::vector<PostHook> post_hooks_;
};

// Puts every parameter and buffer that is on no mesh onto this one, R on every dim; those that lie
// on it stay. Data parallel training is this, with the batch cut. PlacementError for another mesh.
void replicate(Module& module, const DeviceMesh& mesh);

// Fills every parameter that is floating: normal(0, std) keyed by (seed, full name, global index);
// 1-D weights of norms are 1 and biases 0, where the module says so by kind().
void init_normal(Module& module, uint64_t seed, double std = 0.02);

}  // namespace dtensor::nn
