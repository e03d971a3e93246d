#include "dtensor/checkpoint/state.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

void add_model(nn::Module& model, NamedState& out, std::map<const void*, std::string>& names) {
  for (auto& [name, parameter] : model.named_parameters()) {
    names[parameter.id()] = name;
    out.tensors.push_back({name, parameter.value()});
  }
  for (const auto& [name, first] : model.aliases()) {
    if (name != first) out.aliases[name] = first;
  }
}

void add_optimizer(optim::Optimizer& optimizer, const std::map<const void*, std::string>& names,
                   NamedState& out) {
  for (auto& s : optimizer.state()) {
    const auto it = names.find(s.parameter.id());
    if (it == names.end() && !names.empty()) {
      throw ArgumentError(fmt::format(
          "checkpoint: the optimizer has a parameter \"{}\" {} that the model has not; give the "
          "model that the optimizer was made for",
          s.parameter.name(), to_string(s.parameter.value().shape())));
    }
    const std::string name = it == names.end() ? s.parameter.name() : it->second;
    out.tensors.push_back({kOptimizerPrefix + s.state + "." + name, s.value});
  }
  out.numbers[kOptimizerSteps] = optimizer.steps();
}

}  // namespace

NamedState named_state(const State& state) {
  NamedState out;
  std::map<const void*, std::string> names;
  if (state.model.module != nullptr) add_model(*state.model.module, out, names);
  if (state.optimizer.optimizer != nullptr) add_optimizer(*state.optimizer.optimizer, names, out);
  if (state.numbers.numbers != nullptr) {
    for (const auto& [name, number] : *state.numbers.numbers) {
      out.numbers[kNumberPrefix + name] = number;
    }
  }
  std::set<std::string> seen;
  for (const NamedTensor& t : out.tensors) {
    if (t.name.empty() || !seen.insert(t.name).second) {
      throw ArgumentError(
          fmt::format("checkpoint: {} tensors are named \"{}\"; names must be unique",
                      t.name.empty() ? "some" : "two", t.name));
    }
  }
  return out;
}

void refuse_partial(const NamedState& wanted) {
  for (const NamedTensor& t : wanted.tensors) {
    if (!t.value.spec().has_partial()) continue;
    throw PlacementError(fmt::format(
        "checkpoint: \"{}\" is {}; a value is loaded into R or S(d), not into a Partial", t.name,
        to_string(t.value.spec())));
  }
}

}  // namespace dtensor::checkpoint
