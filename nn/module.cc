#include "dtensor/nn/module.h"

#include <algorithm>
#include <set>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/base/shape.h"
#include "dtensor/nn/deferred_init.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/kernels.h"

namespace dtensor::nn {

struct Parameter::State {
  DTensor value;
  DTensor use;
  std::vector<int64_t> units;
  std::string gathered_by;
  std::shared_ptr<Allocator> memory;
  // Of the module that made it. The name is worked out when asked for, as a module may get a
  // parent at any time; `name` alone is left when the module is gone.
  Module* owner = nullptr;
  std::string name;
  bool tied = false;
};

namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  if (prefix.empty() || name.empty()) return prefix + name;
  return prefix + "." + name;
}

void collect(const std::string& prefix, Module* module,
             const std::vector<std::pair<std::string, Module*>>& children,
             std::vector<std::pair<std::string, Module*>>& out) {
  out.emplace_back(prefix, module);
  for (const auto& [name, child] : children) {
    const std::string child_prefix = joined(prefix, name);
    for (const auto& [below, m] : child->named_modules()) {
      out.emplace_back(joined(child_prefix, below), m);
    }
  }
}

// Gives `value` the memory and layout of `other`; whether a gradient is wanted stays.
void replace(DTensor& value, const DTensor& other) {
  const bool wanted = value.requires_grad();
  value.replace(other);
  if (wanted) value.set_requires_grad(true);
}

}  // namespace

Parameter::Parameter(DTensor value, std::vector<int64_t> units)
    : state_(std::make_shared<State>()) {
  const auto ndim = static_cast<size_t>(value.ndim());
  if (!units.empty() && units.size() != ndim) {
    throw ArgumentError("Parameter: " + std::to_string(units.size()) + " units for shape " +
                        to_string(value.shape()) + "; give one per dim, or none");
  }
  if (std::ranges::any_of(units, [](int64_t unit) { return unit < 1; })) {
    throw ArgumentError("Parameter: a unit is below 1; give how many elements stay together");
  }
  units.resize(ndim, 1);
  state_->value = std::move(value);
  state_->units = std::move(units);
}

std::string Parameter::name() const {
  if (state_->owner == nullptr) return state_->name;
  if (state_->tied) {
    Module* top = state_->owner;
    while (top->parent() != nullptr) top = top->parent();
    for (const auto& [name, parameter] : top->named_parameters()) {
      if (parameter == *this) return name;
    }
  }
  return joined(state_->owner->full_name(), state_->name);
}

DTensor& Parameter::value() const { return state_->value; }

const DTensor& Parameter::use() const {
  if (state_->use.defined()) return state_->use;
  if (!state_->gathered_by.empty()) {
    throw PlacementError("parameter \"" + name() + "\" is used outside the forward of " +
                         state_->gathered_by +
                         ", which gathers it; call fully_shard on a module that holds every use");
  }
  if (is_described(state_->value)) {
    throw ArgumentError("parameter \"" + name() +
                        "\" was made under DeferredInit and has no memory; call nn::materialize");
  }
  return state_->value;
}

void Parameter::set_use(DTensor active) const { state_->use = std::move(active); }
int64_t Parameter::unit(int dim) const { return state_->units[static_cast<size_t>(dim)]; }

void Parameter::place(const Layout& to) const {
  const NoGrad no_grad;
  DTensor& value = state_->value;
  if (is_described(value)) {
    const Shape shape = to.local_shape(*value.mesh().coordinate());
    const Tensor local = internal::describe(*this, shape, value.dtype());
    return replace(value, DTensor(local, to, value.mesh()));
  }
  const DTensor moved = redistribute(value, to);
  if (!moved.has_local()) return replace(value, moved);
  Tensor local = moved.local_tensor();
  // A slice is a view: without a copy it would keep the whole tensor's memory.
  const bool owns_all =
      local.is_contiguous() && local.storage()->size_bytes() == local.size_bytes();
  if (!owns_all || memory() != nullptr) {
    const MemoryOf there(*this);
    local = local.clone();
  }
  replace(value, DTensor(local, to, moved.mesh()));
}

void Parameter::set_memory(std::shared_ptr<Allocator> memory) const {
  state_->memory = std::move(memory);
}
const std::shared_ptr<Allocator>& Parameter::memory() const { return state_->memory; }

MemoryOf::MemoryOf(const Parameter& p)
    : scope_(p.memory() != nullptr ? CurrentAllocator{p.memory()}
                                   : Context::current().slot<CurrentAllocator>()) {}

void Parameter::set_gathered_by(std::string who) const { state_->gathered_by = std::move(who); }
const std::string& Parameter::gathered_by() const { return state_->gathered_by; }

Module::~Module() {
  for (const auto& [name, parameter] : parameters_) {
    Parameter::State& state = *parameter.state_;
    if (state.owner != this) continue;
    state.name = parameter.name();
    state.owner = nullptr;
  }
  for (const auto& [name, child] : children_) child->parent_ = nullptr;
  if (parent_ != nullptr) {
    std::erase_if(parent_->children_, [this](const auto& entry) { return entry.second == this; });
  }
}

DTensor Module::call(Inputs inputs) {
  DTensor output;
  try {
    for (const PreHook& hook : pre_hooks_) inputs = hook(inputs);
    output = forward(inputs);
    for (const PostHook& hook : post_hooks_) output = hook(output);
  } catch (...) {
    clean_up();
    throw;
  }
  clean_up();
  return output;
}

void Module::clean_up() const {
  for (const auto& hook : cleanup_hooks_) hook();
}

std::string Module::full_name() const {
  return parent_ == nullptr ? "" : joined(parent_->full_name(), name_);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> out;
  collect("", this, children_, out);
  return out;
}

std::vector<std::pair<std::string, Parameter>> Module::named_parameters() {
  std::vector<std::pair<std::string, Parameter>> out;
  std::set<const void*> seen;
  for (const auto& [prefix, module] : named_modules()) {
    for (const auto& [name, parameter] : module->parameters_) {
      if (seen.insert(parameter.id()).second) out.emplace_back(joined(prefix, name), parameter);
    }
  }
  return out;
}

std::vector<Parameter> Module::parameters() {
  std::vector<Parameter> out;
  for (auto& [name, parameter] : named_parameters()) out.push_back(parameter);
  return out;
}

std::vector<std::pair<std::string, DTensor*>> Module::named_buffers() {
  std::vector<std::pair<std::string, DTensor*>> out;
  for (const auto& [prefix, module] : named_modules()) {
    for (const auto& [name, buffer] : module->buffers_) {
      out.emplace_back(joined(prefix, name), buffer.get());
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Module::aliases() {
  std::vector<std::pair<std::string, std::string>> out;
  std::map<const void*, std::string> first;
  for (const auto& [prefix, module] : named_modules()) {
    for (const auto& [name, parameter] : module->parameters_) {
      const std::string full = joined(prefix, name);
      out.emplace_back(full, first.try_emplace(parameter.id(), full).first->second);
    }
  }
  return out;
}

std::shared_ptr<void>& Module::attached(std::string_view wrapper) {
  return attached_[std::string(wrapper)];
}

void Module::check_new_name(const std::string& name) const {
  const auto is_name = [&](const auto& entry) { return entry.first == name; };
  if (name.empty() || std::ranges::any_of(parameters_, is_name) ||
      std::ranges::any_of(buffers_, is_name) || std::ranges::any_of(children_, is_name)) {
    throw ArgumentError("module \"" + full_name() + "\": the name \"" + name +
                        "\" is empty or taken; give another");
  }
}

Parameter Module::add_parameter(std::string name, const Shape& shape, std::vector<int64_t> units) {
  check_new_name(name);
  const bool deferred = Context::current().slot<ParameterMemory>().deferred;
  const Tensor value = deferred ? internal::describe(shape) : Tensor::zeros(shape);
  Parameter parameter(DTensor(value), std::move(units));
  parameter.value().set_requires_grad(true);
  parameter.state_->owner = this;
  parameter.state_->name = name;
  parameters_.emplace_back(std::move(name), parameter);
  return parameter;
}

void Module::tie_parameter(std::string name, const Parameter& other) {
  for (auto& [own, parameter] : parameters_) {
    if (own != name) continue;
    if (parameter.value().shape() != other.value().shape()) {
      throw ArgumentError("tie \"" + name + "\": " + to_string(parameter.value().shape()) +
                          " to a parameter of shape " + to_string(other.value().shape()));
    }
    if (parameter.state_->owner == this) parameter.state_->owner = nullptr;
    parameter = other;
    other.state_->tied = true;
    return;
  }
  check_new_name(name);
  other.state_->tied = true;
  parameters_.emplace_back(std::move(name), other);
}

DTensor& Module::add_buffer(std::string name, DTensor value) {
  check_new_name(name);
  buffers_.emplace_back(std::move(name), std::make_unique<DTensor>(std::move(value)));
  return *buffers_.back().second;
}

void Module::add_child(std::string name, Module& child) {
  check_new_name(name);
  if (child.parent_ != nullptr || &child == this) {
    throw ArgumentError("add_child(\"" + name + "\"): that module is \"" + child.full_name() +
                        "\" already; a module has one parent");
  }
  child.parent_ = this;
  child.name_ = name;
  children_.emplace_back(std::move(name), &child);
}

void replicate(Module& module, const DeviceMesh& mesh) {
  const auto bring = [&](const std::string& name, DTensor& value) {
    if (!value.mesh().defined()) {
      const NoGrad no_grad;
      replace(value, dtensor::replicate(value, mesh));
    } else if (!(value.mesh() == mesh)) {
      throw PlacementError("replicate: \"" + name + "\" lies on mesh " +
                           to_string(value.mesh().layout()) + ", asked for " +
                           to_string(mesh.layout()) + "; wrap a model for one mesh");
    }
  };
  for (const auto& [name, parameter] : module.named_parameters()) bring(name, parameter.value());
  for (const auto& [name, buffer] : module.named_buffers()) bring(name, *buffer);
}

namespace {

// std * normal at the global indices of this rank's piece, row-major.
template <class T>
void fill_normal(const Tensor& local, const Box& box, const Shape& global, uint64_t seed,
                 uint64_t stream, double std) {
  T* out = local.data<T>();
  const Shape strides = contiguous_strides(global);
  Shape at = Shape::filled(global.ndim(), 0);
  for (int64_t i = 0; i < local.numel(); ++i) {
    uint64_t index = 0;
    for (int d = 0; d < global.ndim(); ++d) {
      index += static_cast<uint64_t>((box.offset[d] + at[d]) * strides[d]);
    }
    out[i] = static_cast<T>(static_cast<float>(std) * philox_normal(seed, stream, index));
    for (int d = global.ndim() - 1; d >= 0 && ++at[d] == box.size[d]; --d) at[d] = 0;
  }
}

enum class Fill { kNormal, kOne, kZero };

Fill fill_of(std::string_view kind, std::string_view name) {
  if (name == "bias" || name == "lora_b") return Fill::kZero;
  return kind.ends_with("Norm") && name == "weight" ? Fill::kOne : Fill::kNormal;
}

void init(const DTensor& value, Fill fill, const std::string& name, uint64_t seed, double std) {
  if (!value.has_local() || !is_floating(value.dtype())) return;
  if (is_described(value)) {
    throw ArgumentError("init_normal: \"" + name +
                        "\" was made under DeferredInit and has no memory; call nn::materialize");
  }
  const Tensor& local = value.local_tensor();
  if (fill != Fill::kNormal) {
    kernels::fill(local, fill == Fill::kOne ? 1.0 : 0.0);
    return;
  }
  const Coordinate at = value.mesh().defined() ? *value.mesh().coordinate() : Coordinate{};
  const Box box = value.layout().box(at);
  const Tensor values = Tensor::empty(local.shape(), local.dtype());
  visit_dtype(local.dtype(), [&](auto tag) {
    using T = decltype(tag);
    if constexpr (is_floating(kDTypeOf<T>)) {
      fill_normal<T>(values, box, value.shape(), seed, stream_of(name), std);
    }
  });
  kernels::copy(values, local);
}

}  // namespace

void init_normal(Module& module, uint64_t seed, double std) {
  std::set<const void*> seen;
  for (const auto& [prefix, m] : module.named_modules()) {
    for (const auto& [name, parameter] : m->own_parameters()) {
      if (!seen.insert(parameter.id()).second) continue;
      init(parameter.value(), fill_of(m->kind(), name), parameter.name(), seed, std);
    }
  }
}

}  // namespace dtensor::nn
