// What is saved and loaded, and its tensors by name.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::checkpoint {

// References, so that {.model = model, .optimizer = optimizer} reads as it should.
struct ModelRef {
  ModelRef() = default;
  ModelRef(nn::Module& m) : module(&m) {}  // NOLINT(google-explicit-constructor)
  nn::Module* module = nullptr;
};
struct OptimizerRef {
  OptimizerRef() = default;
  OptimizerRef(optim::Optimizer& o) : optimizer(&o) {}  // NOLINT(google-explicit-constructor)
  optim::Optimizer* optimizer = nullptr;
};
struct NumbersRef {
  NumbersRef() = default;
  NumbersRef(std::map<std::string, int64_t>& n)  // NOLINT(google-explicit-constructor)
      : numbers(&n) {}
  std::map<std::string, int64_t>* numbers = nullptr;
};

// Any of them may be left out. Buffers of the model are not part of it: they are computed.
struct State {
  ModelRef model = {};
  OptimizerRef optimizer = {};
  // The program's own integers, equal on all ranks: samples seen, a generator's state.
  NumbersRef numbers = {};
};

inline constexpr char kOptimizerPrefix[] = "optimizer.";
inline constexpr char kOptimizerSteps[] = "optimizer.steps";
inline constexpr char kNumberPrefix[] = "user.";

struct NamedTensor {
  std::string name;  // a parameter's, or optimizer.<state>.<parameter>
  DTensor value;     // a handle of the model's, or the optimizer's, own
};
struct NamedState {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> aliases;  // further name of a tied parameter -> its first
  std::map<std::string, int64_t> numbers;
};
// ArgumentError for two tensors of one name, a parameter without a name, or an optimizer's that
// is not the model's.
NamedState named_state(const State& state);

// PlacementError naming the first tensor that is Partial: a value is loaded into R or S(d).
void refuse_partial(const NamedState& wanted);

}  // namespace dtensor::checkpoint
