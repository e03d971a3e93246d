// Group: the parameters that one fully_shard took, and the hooks that gather them, free them and
// reduce their gradients.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/fsdp/options.h"
#include "dtensor/fsdp/pass.h"
#include "dtensor/fsdp/schedule.h"
#include "dtensor/fsdp/unused_gradients.h"
#include "dtensor/fsdp/whole_gradients.h"
#include "dtensor/tensor/autograd.h"

namespace dtensor::fsdp {

class Group : public ScheduledGroup, public std::enable_shared_from_this<Group> {
 public:
  Group(nn::Module& module, MeshSlice dims, std::vector<nn::Parameter> parameters,
        const Options& options);

  // The hooks of the module.
  nn::Inputs before_forward(const nn::Inputs& inputs);
  DTensor after_forward(const DTensor& y);
  void clean_up();

  // By hand; see fully_shard.h.
  void unshard();
  void reshard();

  std::shared_ptr<Pass> new_pass() override;
  std::unique_ptr<Reduction> reduce_deferred() override;
  void drop_gradients() override { gradients_.drop_unshown(); }
  void read_ahead() const override;
  void hide_parameters() const override;

 private:
  // Options of this group, with those of the root where it names none.
  struct Settled {
    std::optional<DType> param_dtype;
    std::optional<DType> reduce_dtype;
    bool casts_inputs = true;
    bool reshards = true;
    bool stays = false;
    std::optional<MeshSlice> reshard_over;
  };
  // The group of the topmost module above that is fully sharded; this one where there is none.
  std::shared_ptr<Group> root();
  // Of a root: what its groups are gathered on.
  const std::shared_ptr<const GatherLane>& lane();
  Settled settled(const Group& root) const;
  // Over what it gathers; nothing where it never does.
  std::vector<Channel> channels(Group& root) const;
  void begin_forward();
  std::shared_ptr<Gathered> new_gathered(const Settled& options, Group& root) const;
  bool holds_current() const;
  void drop_staying();
  void add_cut_dims(Pass& pass, const DTensor& t) const;
  DTensor gathered_tensor(const Pass& pass, size_t index) const;
  void record_gather(const std::shared_ptr<Pass>& pass);
  nn::Inputs watch_inputs(const std::shared_ptr<Pass>& pass, const nn::Inputs& inputs);

  void before_backward(const std::shared_ptr<Pass>& pass);
  void show_to_regions(const std::shared_ptr<Pass>& pass) const;
  void reduce(Pass& pass, std::span<const DTensor> grads);

  // Used in forward only: a graph may outlive the module.
  nn::Module& module_;
  MeshSlice dims_;
  std::vector<nn::Parameter> parameters_;
  WholeGradients gradients_;
  UnusedGradients unused_;
  Options options_;
  std::shared_ptr<Pass> running_;  // between the hooks before and after forward
  // Of the groups whose root this is.
  std::shared_ptr<Schedule> schedule_;
  std::shared_ptr<const GatherLane> lane_;  // null until a group is gathered
  // Under Zero::kState, or by hand: until the parameters are written.
  std::shared_ptr<Gathered> staying_;
  bool by_hand_ = false;
};

// The Group of a module; null where it is not fully sharded.
Group* group_of(nn::Module& module);

}  // namespace dtensor::fsdp
