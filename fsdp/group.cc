#include "dtensor/fsdp/group.h"

#include <algorithm>
#include <utility>

#include "dtensor/fsdp/slow_tier.h"
#include "dtensor/fsdp/trace.h"
#include "dtensor/nn/mixed_precision.h"
#include "dtensor/ops/cast.h"

namespace dtensor::fsdp {
namespace {

bool is_deferred() { return Context::current().slot<BackwardMode>().defer; }
bool in_backward() { return Context::current().slot<BackwardMode>().running; }

bool contains(const MeshSlice& dims, const MeshSlice& some) {
  return some.mesh == dims.mesh && std::ranges::all_of(some.dims, [&](int m) {
           return std::ranges::find(dims.dims, m) != dims.dims.end();
         });
}

// `local` is undefined on a rank outside the mesh.
DTensor make(const Tensor& local, DType dtype, const Layout& layout, const DeviceMesh& mesh) {
  return local.defined() ? DTensor(local, layout, mesh) : DTensor(dtype, layout, mesh);
}

void trace_phase(Phase phase, const Pass& pass) {
  if (!is_tracing()) return;
  trace({phase, pass.gathered->name, pass.began, std::chrono::steady_clock::now(), 0});
}

}  // namespace

Group* group_of(nn::Module& module) { return static_cast<Group*>(module.attached("fsdp").get()); }

Group::Group(nn::Module& module, MeshSlice dims, std::vector<nn::Parameter> parameters,
             const Options& options)
    : module_(module),
      dims_(std::move(dims)),
      parameters_(std::move(parameters)),
      gradients_(parameters_),
      unused_(dims_, parameters_.size()),
      options_(options),
      schedule_(std::make_shared<Schedule>()) {}

std::shared_ptr<Group> Group::root() {
  Group* found = this;
  for (nn::Module* m = module_.parent(); m != nullptr; m = m->parent()) {
    if (Group* above = group_of(*m)) found = above;
  }
  return found->shared_from_this();
}

const std::shared_ptr<const GatherLane>& Group::lane() {
  if (lane_ == nullptr) lane_ = std::make_shared<const GatherLane>(dims_.mesh);
  return lane_;
}

Group::Settled Group::settled(const Group& root) const {
  const auto either = [](const auto& own, const auto& other) { return own ? own : other; };
  const Options& top = root.options_;
  const Zero zero = either(options_.zero, top.zero).value_or(Zero::kParameters);
  const auto reshards = either(options_.reshard_after_forward, top.reshard_after_forward);
  // A group over other dims is not cut over those of the root's.
  const bool fits = top.reshard_over && contains(dims_, *top.reshard_over);
  return {.param_dtype = either(options_.param_dtype, top.param_dtype),
          .reduce_dtype = either(options_.reduce_dtype, top.reduce_dtype),
          .casts_inputs = either(options_.cast_inputs, top.cast_inputs).value_or(true),
          .reshards = zero == Zero::kParameters && reshards.value_or(&root != this),
          .stays = zero == Zero::kState,
          .reshard_over =
              fits ? either(options_.reshard_over, top.reshard_over) : options_.reshard_over};
}

std::shared_ptr<Gathered> Group::new_gathered(const Settled& options, Group& root) const {
  const std::vector<Placement> whole(dims_.dims.size(), Replicate());
  std::vector<Member> members;
  for (const nn::Parameter& p : parameters_) {
    const Layout& layout = p.value().layout();
    const DType own = p.value().dtype();
    Member member{.parameter = p,
                  .gathered = layout.with(dims_.dims, whole),
                  .kept = {},
                  .dtype = is_floating(own) ? options.param_dtype.value_or(own) : own};
    if (options.reshard_over) {
      std::vector<Placement> cut;
      for (const int m : options.reshard_over->dims) cut.push_back(layout.placement(m));
      member.kept = member.gathered.with(options.reshard_over->dims, cut);
    }
    members.push_back(std::move(member));
  }
  const bool counted = options.reshards && &root != this && !by_hand_;
  auto gathered = std::make_shared<Gathered>(
      std::move(members), root.lane(), counted ? Gathered::Counted::kYes : Gathered::Counted::kNo);
  if (is_tracing()) gathered->name = module_.full_name();
  return gathered;
}

std::shared_ptr<Pass> Group::new_pass() {
  const std::shared_ptr<Group> top = root();
  const Settled options = settled(*top);
  auto pass = std::make_shared<Pass>();
  if (!holds_current()) {
    drop_staying();
    pass->gathered = new_gathered(options, *top);
    pass->gathered->stays = options.stays;
    if (options.stays) staying_ = pass->gathered;
  } else {
    pass->gathered = staying_;
  }
  pass->group = shared_from_this();
  pass->schedule = top->schedule_;
  pass->of_root = top.get() == this;
  pass->reshards = options.reshards && !pass->gathered->stays;
  pass->reduce_dtype = options.reduce_dtype;
  return pass;
}

bool Group::holds_current() const { return staying_ != nullptr && staying_->is_current(); }

// A pass whose backward is still to come gathers anew for it, and frees.
void Group::drop_staying() {
  if (staying_ != nullptr) staying_->stays = false;
  staying_ = nullptr;
  by_hand_ = false;
}

void Group::unshard() {
  if (!holds_current()) {
    const std::shared_ptr<Group> top = root();
    drop_staying();
    by_hand_ = true;
    staying_ = new_gathered(settled(*top), *top);
    staying_->stays = true;
    staying_->start();
  }
  by_hand_ = true;
}

void Group::reshard() {
  const std::shared_ptr<Gathered> gathered = staying_;
  drop_staying();
  if (gathered != nullptr) gathered->release_all();
}

DTensor Group::gathered_tensor(const Pass& pass, size_t index) const {
  const Member& member = pass.gathered->members()[index];
  return make(pass.gathered->tensor(index), member.dtype, member.gathered, dims_.mesh);
}

std::vector<Channel> Group::channels(Group& root) const {
  const bool gathers = std::ranges::any_of(parameters_, [&](const nn::Parameter& p) {
    return std::ranges::any_of(dims_.dims,
                               [&](int m) { return p.value().layout().placement(m).is_shard(); });
  });
  if (!gathers) return {};
  std::vector<Channel> channels{{root.lane(), dims_.dims}};
  const std::optional<MeshSlice> over = settled(root).reshard_over;
  if (over) channels.push_back({root.lane(), over->dims});
  return channels;
}

void Group::begin_forward() {
  std::vector<std::weak_ptr<ScheduledGroup>> groups;
  std::vector<Channel> channels;
  for (const auto& [name, module] : module_.named_modules()) {
    Group* group = group_of(*module);
    if (group == nullptr) continue;
    groups.push_back(group->weak_from_this());
    for (Channel& channel : group->channels(*this)) {
      if (std::ranges::find(channels, channel) == channels.end()) {
        channels.push_back(std::move(channel));
      }
    }
  }
  schedule_->begin_forward(std::move(groups), std::move(channels),
                           options_.overlap.value_or(Overlap::kYes) == Overlap::kYes);
}

nn::Inputs Group::before_forward(const nn::Inputs& inputs) {
  const std::shared_ptr<Group> top = root();
  if (top.get() == this && !in_backward()) begin_forward();
  std::shared_ptr<Pass> pass = top->schedule_->take_ahead(*this);
  if (pass == nullptr) {
    pass = new_pass();
    pass->gathered->start();
  }
  pass->gathered->finish();
  pass->began = std::chrono::steady_clock::now();
  running_ = pass;
  for (const DTensor& x : inputs) add_cut_dims(*pass, x);
  top->schedule_->entered_forward(shared_from_this());
  record_gather(pass);
  const Settled options = settled(*top);
  const bool casts = options.param_dtype && options.casts_inputs;
  return watch_inputs(pass, casts ? nn::cast_inputs(inputs, *options.param_dtype) : inputs);
}

void Group::add_cut_dims(Pass& pass, const DTensor& t) const {
  if (!t.defined() || !(t.mesh() == dims_.mesh)) return;
  for (int m = 0; m < dims_.mesh.ndim(); ++m) {
    if (!t.layout().placement(m).is_replicate()) pass.cut_dims |= uint32_t{1} << m;
  }
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
  // is a call of all. The gradients go to the parameters when they are reduced, past this node.
  record("fsdp", values, gathered,
         [self = shared_from_this(), pass](std::span<const DTensor> grads) {
           self->reduce(*pass, grads);
           return Grads(grads.size());
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
    if (watched) ++pass->watched_inputs;
    out.push_back(!watched ? x : with_backward_hook(x, [pass] {
      if (--pass->open_inputs > 0) return;
      for (const size_t i : pass->frozen) pass->release(i);
    }));
  }
  return out;
}

DTensor Group::after_forward(const DTensor& made) {
  const std::shared_ptr<Pass> pass = running_;
  const std::optional<DType> dtype = options_.output_dtype;
  const bool casts = dtype && is_floating(made.dtype()) && made.dtype() != *dtype;
  const DTensor y = casts ? cast(made, *dtype) : made;
  add_cut_dims(*pass, y);
  trace_phase(Phase::kForward, *pass);
  if (pass->of_root) pass->schedule->end_forward();
  const bool has_graph =
      grad_enabled() && is_floating(y.dtype()) && (y.requires_grad() || !pass->trainable.empty());
  if (!has_graph) {
    pass->release_all();
    return y;
  }
  // In a forward that is part of a backward the module's own backward comes at once.
  if (pass->reshards && !in_backward()) pass->gathered->shrink();
  pass->schedule->add_to_tape(pass);
  // The gathered parameters are inputs of the node, so that their own node is met by every
  // backward through the module, used or not.
  std::vector<DTensor> inputs{y};
  for (const size_t i : pass->trainable) inputs.push_back(parameters_[i].use());
  DTensor out = y.detach();
  const size_t n = inputs.size();
  record("fsdp", inputs, std::span<DTensor>(&out, 1),
         [self = shared_from_this(), pass, n](std::span<const DTensor> grads) {
           self->before_backward(pass);
           Grads result(n);
           result[0] = grads[0];
           return result;
         },
         {.passes_partial = true});
  return out;
}

void Group::read_ahead() const {
  for (const nn::Parameter& p : parameters_) fsdp::read_ahead(p);
}

void Group::hide_parameters() const {
  for (const nn::Parameter& p : parameters_) p.set_use({});
}

void Group::clean_up() {
  hide_parameters();
  // Without a pass it threw before there was one.
  const bool of_root = running_ != nullptr ? running_->of_root : root().get() == this;
  if (of_root && !in_backward()) schedule_->drop_ahead();
  running_.reset();
}

void Group::before_backward(const std::shared_ptr<Pass>& pass) {
  Schedule& schedule = *pass->schedule;
  Schedule::begin_backward(pass->schedule);
  schedule.keep(pass);
  pass->open_inputs = pass->watched_inputs;
  pass->gathered->start();
  pass->gathered->finish();
  pass->began = std::chrono::steady_clock::now();
  schedule.entered_backward(pass);
  show_to_regions(pass);
}

// What is computed again inside the module's backward (recomputed) uses the gathered parameters
// once more: as leaves, whose gradients join those of the rest of the module.
void Group::show_to_regions(const std::shared_ptr<Pass>& pass) const {
  pass->of_regions.assign(parameters_.size(), {});
  for (const size_t i : pass->frozen) parameters_[i].set_use(gathered_tensor(*pass, i));
  for (const size_t i : pass->trainable) {
    DTensor leaf = gathered_tensor(*pass, i);
    leaf.set_requires_grad(true);
    add_grad_hook(leaf, [weak = std::weak_ptr<Pass>(pass), i](const DTensor& grad) {
      if (const auto alive = weak.lock()) {
        alive->of_regions[i] = accumulate(alive->of_regions[i], grad);
      }
      return DTensor();
    });
    parameters_[i].set_use(std::move(leaf));
  }
}

void Group::reduce(Pass& pass, std::span<const DTensor> grads) {
  hide_parameters();
  // The memory of gathered parameters goes before the reduction takes some of its own.
  for (const size_t i : pass.trainable) pass.release(i);
  pass.done = true;
  const bool deferred = is_deferred();
  std::vector<DTensor> whole;
  for (size_t k = 0; k < grads.size(); ++k) {
    const size_t i = pass.trainable[k];
    const DTensor of_regions = i < pass.of_regions.size() ? pass.of_regions[i] : DTensor();
    whole.push_back(accumulate(grads[k], of_regions));
    if (whole[k].defined()) unused_.saw(i, whole[k].layout());
  }
  for (size_t k = 0; k < grads.size(); ++k) {
    const size_t i = pass.trainable[k];
    const Member& member = pass.gathered->members()[i];
    const DType wire = pass.reduce_dtype.value_or(member.dtype);
    gradients_.take_back(i);
    if (whole[k].defined()) {
      gradients_.add(i, whole[k], wire);
    } else if (!gradients_.has(i)) {
      gradients_.add(i, unused_.zero(i, member, whole, pass.cut_dims), wire);
    }
    if (deferred) gradients_.show(i);
    whole[k] = DTensor();
  }
  pass.of_regions.clear();
  trace_phase(Phase::kBackward, pass);
  if (deferred) return;
  Schedule::begin_backward(pass.schedule);
  pass.schedule->reduce([&] {
    return std::make_unique<Reduction>(dims_, gradients_.take(pass.trainable), pass.gathered->name);
  });
}

std::unique_ptr<Reduction> Group::reduce_deferred() {
  std::vector<WholeGradient> left = gradients_.take_deferred();
  if (left.empty()) return nullptr;
  return std::make_unique<Reduction>(dims_, std::move(left), "");
}

}  // namespace dtensor::fsdp
