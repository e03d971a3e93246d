// Optimizer: updates parameters of any placement from their gradients: elementwise on the local
// pieces, without a message.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::optim {

class ParameterState;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Updates every parameter that has a gradient. PlacementError for a gradient that is Partial (a
  // deferred backward was the last) or cut otherwise than its parameter; nothing was changed then.
  void step();
  void zero_grad();
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }

  // State tensors, each like its parameter; made where they are not there yet. With the number of
  // steps done they are what a checkpoint holds.
  struct StateTensor {
    std::string state;  // "exp_avg"
    nn::Parameter parameter;
    DTensor value;
  };
  virtual std::vector<StateTensor> state() = 0;
  int64_t steps() const { return steps_; }
  // As though every parameter had been updated in each of them.
  void set_steps(int64_t steps);
  // How often each of parameters() was updated, in their order: fewer times than steps() where it
  // had no gradient in some. That is what corrections of a young average go by.
  const std::vector<int64_t>& updates() const { return updates_; }
  void set_updates(std::vector<int64_t> updates);  // ArgumentError unless one for each

 protected:
  // One that is listed twice (it is tied) counts once.
  explicit Optimizer(const std::vector<nn::Parameter>& parameters);
  // Updates this rank's piece, for the `count`-th time; from 1.
  virtual void update(const nn::Parameter& p, const Tensor& gradient, int64_t count) = 0;
  // What update() reads and writes beside the parameter: of a parameter in a slow tier
  // (FileAllocator) it is read ahead, and let go after the update.
  virtual std::vector<const ParameterState*> states() const { return {}; }

 private:
  enum class Hint : uint8_t { kWillNeed, kLetGo };
  void give_hint(const nn::Parameter& p, Hint hint) const;

  std::vector<nn::Parameter> parameters_;
  std::vector<int64_t> updates_;
  int64_t steps_ = 0;
};

// One state tensor per parameter, made when first asked for: f32 (f64 for f64), zero, placed as
// the parameter, in the same memory. PlacementError where a wrapper has placed the parameter
// otherwise since.
class ParameterState {
 public:
  explicit ParameterState(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  const DTensor& of(const nn::Parameter& p);
  const DTensor* find(const nn::Parameter& p) const;  // null where it was not made yet
  void append_to(std::vector<Optimizer::StateTensor>& list, const nn::Parameter& p);

 private:
  std::string name_;
  std::map<const void*, DTensor> values_;
};

// f32 copies of 16-bit parameters: what is updated in their stead.
class MasterCopies {
 public:
  static bool wanted(const nn::Parameter& p);
  // The tensor to update: the parameter's own piece, or its copy. An element of the copy that no
  // longer rounds to the parameter's (somebody loaded the parameter) is taken from the parameter.
  Tensor begin(const nn::Parameter& p);
  // Rounds the copy into the parameter.
  void end(const nn::Parameter& p);
  void append_to(std::vector<Optimizer::StateTensor>& list, const nn::Parameter& p);
  const ParameterState& copies() const { return copies_; }

 private:
  ParameterState copies_{"master"};
};

}  // namespace dtensor::optim
