#include "dtensor/fsdp/group.h"

#include <utility>

#include "dtensor/nn/mixed_precision.h"

namespace dtensor::fsdp {
namespace {

bool is_deferred() { return Context::current().slot<BackwardMode>().defer; }

Group* group_of(nn::Module& module) { return static_cast<Group*>(module.attached("fsdp").get()); }

void before_backward(const std::shared_ptr<Pass>& pass) {
  Schedule& schedule = *pass->schedule;
  if (!schedule.ends_backward) {
    schedule.ends_backward = true;
    on_backward_end([kept = pass->schedule] { kept->end_backward(); });
  }
  if (pass->of_root && !is_deferred()) schedule.flush_unmet();
  pass->gathered.start();
  pass->gathered.finish();
  schedule.entered_backward(pass);
}

// `local` is undefined on a rank outside the mesh.
DTensor make(const Tensor& local, DType dtype, const Layout& layout, const DeviceMesh& mesh) {
  return local.defined() ? DTensor(local, layout, mesh) : DTensor(dtype, layout, mesh);
}

}  // namespace

Group::Group(nn::Module& module, MeshSlice dims, std::vector<nn::Parameter> parameters,
             const Options& options)
    : module_(module),
      dims_(std::move(dims)),
      parameters_(std::move(parameters)),
      gradients_(parameters_, dims_),
      options_(options),
      schedule_(std::make_shared<Schedule>()) {}

std::shared_ptr<Group> Group::root() {
  Group* found = this;
  for (nn::Module* m = module_.parent(); m != nullptr; m = m->parent()) {
    if (Group* above = group_of(*m)) found = above;
  }
  return found->shared_from_this();
}

Group::Settled Group::settled(const Group& root) const {
  const auto either = [](const auto& own, const auto& other) { return own ? own : other; };
  return {either(options_.param_dtype, root.options_.param_dtype),
          either(options_.reduce_dtype, root.options_.reduce_dtype),
          either(options_.reshard_after_forward, root.options_.reshard_after_forward)
              .value_or(&root != this)};
}

std::shared_ptr<Pass> Group::new_pass() {
  const std::shared_ptr<Group> top = root();
  const Settled options = settled(*top);
  const std::vector<Placement> whole(dims_.dims.size(), Replicate());
  std::vector<Member> members;
  for (const nn::Parameter& p : parameters_) {
    const DType own = p.value().dtype();
    const DType dtype = is_floating(own) ? options.param_dtype.value_or(own) : own;
    members.push_back({p, p.value().layout().with(dims_.dims, whole), dtype});
  }
  const bool counted = options.reshards && top.get() != this;
  auto pass = std::make_shared<Pass>(std::move(members), dims_.mesh,
                                     counted ? Gathered::Counted::kYes : Gathered::Counted::kNo);
  pass->group = shared_from_this();
  pass->schedule = top->schedule_;
  pass->of_root = top.get() == this;
  pass->reshards = options.reshards;
  pass->reduce_dtype = options.reduce_dtype;
  return pass;
}

DTensor Group::gathered_tensor(const Pass& pass, size_t index) const {
  const Member& member = pass.gathered.members()[index];
  return make(pass.gathered.tensor(index), member.dtype, member.gathered, dims_.mesh);
}

void Group::begin_forward() {
  std::vector<std::weak_ptr<ScheduledGroup>> groups;
  for (const auto& [name, module] : module_.named_modules()) {
    if (Group* group = group_of(*module)) groups.push_back(group->weak_from_this());
  }
  schedule_->begin_forward(std::move(groups));
}

nn::Inputs Group::before_forward(const nn::Inputs& inputs) {
  const std::shared_ptr<Group> top = root();
  if (top.get() == this) begin_forward();
  std::shared_ptr<Pass> pass = top->schedule_->take_ahead(*this);
  if (pass == nullptr) {
    pass = new_pass();
    pass->gathered.start();
  }
  pass->gathered.finish();
  running_ = pass;
  top->schedule_->entered_forward(shared_from_this());
  record_gather(pass);
  const std::optional<DType> dtype = settled(*top).param_dtype;
  return watch_inputs(pass, dtype ? nn::cast_inputs(inputs, *dtype) : inputs);
}

// One node from the cut parameters to the gathered ones; its backward has the gradients of all.
void Group::record_gather(const std::shared_ptr<Pass>& pass) {
  std::vector<DTensor> values;
  std::vector<DTensor> gathered;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const DTensor whole = gathered_tensor(*pass, i);
    if (parameters_[i].value().requires_grad()) {
      pass->trainable.push_back(i);
      values.push_back(parameters_[i].value());
      gathered.push_back(whole);
    } else {
      pass->frozen.push_back(i);
      parameters_[i].set_use(whole);
    }
  }
  // It is called also where no gradient came on this rank: others may have one, and the reduction
  // is a call of all.
  record("fsdp", values, gathered,
         [self = shared_from_this(), pass](std::span<const DTensor> grads) {
           return self->reduce(*pass, grads);
         },
         {.passes_partial = true, .always = true});
  for (size_t k = 0; k < gathered.size(); ++k) parameters_[pass->trainable[k]].set_use(gathered[k]);
}

// A frozen parameter has no gradient that could say when backward is through with it: it is freed
// when the gradients of the module's inputs are complete.
nn::Inputs Group::watch_inputs(const std::shared_ptr<Pass>& pass, const nn::Inputs& inputs) {
  if (pass->frozen.empty() || !pass->reshards || !grad_enabled()) return inputs;
  nn::Inputs out;
  for (const DTensor& x : inputs) {
    const bool watched = x.defined() && x.requires_grad();
    if (watched) ++pass->open_inputs;
    out.push_back(!watched ? x : with_backward_hook(x, [pass] {
      if (--pass->open_inputs > 0) return;
      for (const size_t i : pass->frozen) pass->gathered.release(i);
    }));
  }
  return out;
}

DTensor Group::after_forward(const DTensor& y) {
  const std::shared_ptr<Pass> pass = running_;
  if (pass->of_root) pass->schedule->end_forward();
  const bool has_graph =
      grad_enabled() && is_floating(y.dtype()) && (y.requires_grad() || !pass->trainable.empty());
  if (pass->reshards || !has_graph) pass->gathered.release_all();
  if (!has_graph) return y;
  pass->schedule->add_to_tape(pass);
  // The gathered parameters are inputs of the node, so that their own node is met by every
  // backward through the module, used or not.
  std::vector<DTensor> inputs{y};
  for (const size_t i : pass->trainable) inputs.push_back(parameters_[i].use());
  DTensor out = y.detach();
  const size_t n = inputs.size();
  record("fsdp", inputs, std::span<DTensor>(&out, 1),
         [pass, n](std::span<const DTensor> grads) {
           before_backward(pass);
           std::vector<DTensor> result(n);
           result[0] = grads[0];
           return result;
         },
         {.passes_partial = true});
  return out;
}

void Group::clean_up() {
  for (const nn::Parameter& p : parameters_) p.set_use({});
  if (running_ != nullptr && running_->of_root) schedule_->drop_ahead();
  running_.reset();
}

std::vector<DTensor> Group::reduce(Pass& pass, std::span<const DTensor> grads) {
  // The memory of gathered parameters goes before the reduction takes some of its own.
  for (const size_t i : pass.trainable) pass.gathered.release(i);
  pass.done = true;
  const bool deferred = is_deferred();
  for (size_t k = 0; k < grads.size(); ++k) {
    const size_t i = pass.trainable[k];
    const Member& member = pass.gathered.members()[i];
    const DType wire = pass.reduce_dtype.value_or(member.dtype);
    gradients_.take_back(i);
    if (grads[k].defined()) gradients_.add(i, grads[k], wire);
    if (!deferred && !gradients_.has(i)) gradients_.add(i, zero_gradient(member), wire);
    if (deferred && gradients_.has(i)) gradients_.show(i);
  }
  return deferred ? std::vector<DTensor>(grads.size()) : gradients_.reduce(pass.trainable);
}

// Of a parameter that this rank did not use: a part of a sum, as what the others may have is.
DTensor Group::zero_gradient(const Member& member) const {
  const std::vector<Placement> partial(dims_.dims.size(), Partial());
  const Layout layout = member.gathered.with(dims_.dims, partial);
  Tensor zero;
  if (const auto& at = dims_.mesh.coordinate()) {
    // One element that stands for all of them.
    const Shape shape = layout.local_shape(*at);
    zero = Tensor::zeros(Shape::filled(shape.ndim(), 1), member.dtype).expand(shape);
  }
  return make(zero, member.dtype, layout, dims_.mesh);
}

}  // namespace dtensor::fsdp
