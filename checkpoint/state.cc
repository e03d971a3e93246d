#include "dtensor/checkpoint/state.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

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

// The model's, where there is a model.
std::string name_of(const nn::Parameter& p, const std::map<const void*, std::string>& names) {
  const auto it = names.find(p.id());
  return it == names.end() ? p.name() : it->second;
}

std::string tensor_name(const optim::Optimizer::StateTensor& s,
                        const std::map<const void*, std::string>& names) {
  return kOptimizerPrefix + s.state + "." + name_of(s.parameter, names);
}

// State of parameters, "<owner>" of an error. The model's names count where there is a model.
void add_states(const char* owner, const std::vector<optim::Optimizer::StateTensor>& states,
                const std::map<const void*, std::string>& names, NamedState& out) {
  for (const auto& s : states) {
    const auto it = names.find(s.parameter.id());
    if (it == names.end() && !names.empty()) {
      throw ArgumentError(fmt::format(
          "checkpoint: the {0} has a parameter \"{1}\" {2} that the model has not; give the "
          "model that the {0} was made for",
          owner, s.parameter.name(), to_string(s.parameter.value().shape())));
    }
    out.tensors.push_back({tensor_name(s, names), s.value});
  }
}

}  // namespace

NamedState named_state(const State& state) {
  NamedState out;
  std::map<const void*, std::string> names;
  if (state.model.module != nullptr) add_model(*state.model.module, out, names);
  if (optim::Optimizer* optimizer = state.optimizer.optimizer) {
    add_states("optimizer", optimizer->state(), names, out);
    out.numbers[kOptimizerSteps] = optimizer->steps();
    for (size_t i = 0; i < optimizer->updates().size(); ++i) {
      const nn::Parameter& p = optimizer->parameters()[i];
      const int64_t updates = optimizer->updates()[i];
      // Ranks that hold nothing of it may have had no gradient.
      if (updates == optimizer->steps() || !p.value().has_local()) continue;
      out.numbers[kUpdatesPrefix + name_of(p, names)] = updates;
    }
  }
  if (state.ema.ema != nullptr) add_states("Ema", state.ema.ema->state(), names, out);
  if (state.numbers.numbers != nullptr) {
    for (const auto& [name, number] : *state.numbers.numbers) {
      out.numbers[kNumberPrefix + name] = number;
    }
  }
  if (const Generator* generator = state.generator.generator) {
    out.numbers[kGeneratorSeed] = static_cast<int64_t>(generator->seed);
    out.numbers[kGeneratorStream] = static_cast<int64_t>(generator->next_stream);
  }
  if (state.data.position != nullptr) out.numbers[kDataSamples] = state.data.position->samples;
  if (state.json.documents != nullptr) out.texts = *state.json.documents;
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

std::string negative_count(const std::map<std::string, int64_t>& numbers) {
  for (const char* name : {kOptimizerSteps, kDataSamples, kGeneratorStream}) {
    const auto it = numbers.find(name);
    if (it != numbers.end() && it->second < 0) return name;
  }
  for (const auto& [name, number] : numbers) {
    if (number < 0 && name.starts_with(kUpdatesPrefix)) return name;
  }
  return "";
}

void check_for_saving(const NamedState& state) {
  for (const auto& [name, text] : state.texts) {
    if (nlohmann::json::accept(text)) continue;
    throw ArgumentError(
        fmt::format("checkpoint: the document \"{}\" is no JSON: {:.40}", name, text));
  }
  if (const std::string name = negative_count(state.numbers); !name.empty()) {
    throw ArgumentError(fmt::format("checkpoint: the number \"{}\" is {}; it must be 0 to 2^63 - 1",
                                    name, state.numbers.at(name)));
  }
}

namespace {

// Averages that were not loaded are as old as they were.
void restore_updates(const State& state, const std::map<std::string, int64_t>& numbers,
                     const std::function<std::string(const std::string&)>& loaded) {
  optim::Optimizer& optimizer = *state.optimizer.optimizer;
  std::map<const void*, std::string> names;
  NamedState ignored;
  if (state.model.module != nullptr) add_model(*state.model.module, ignored, names);
  std::map<const void*, std::string> stored_as;  // parameters whose state was loaded
  for (const auto& s : optimizer.state()) {
    const std::string stored = loaded(tensor_name(s, names));
    const std::string prefix = kOptimizerPrefix + s.state + ".";
    if (stored.empty()) continue;
    stored_as[s.parameter.id()] =
        stored.starts_with(prefix) ? stored.substr(prefix.size()) : name_of(s.parameter, names);
  }
  std::vector<int64_t> updates = optimizer.updates();
  optimizer.set_steps(numbers.at(kOptimizerSteps));
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto it = stored_as.find(optimizer.parameters()[i].id());
    if (it == stored_as.end()) continue;
    const auto number = numbers.find(kUpdatesPrefix + it->second);
    updates[i] = number == numbers.end() ? optimizer.steps() : number->second;
  }
  optimizer.set_updates(std::move(updates));
}

}  // namespace

void restore(const State& state, const std::map<std::string, int64_t>& numbers,
             const std::map<std::string, std::string>& texts,
             const std::function<std::string(const std::string&)>& loaded) {
  if (state.optimizer.optimizer != nullptr) restore_updates(state, numbers, loaded);
  if (Generator* generator = state.generator.generator) {
    generator->seed = static_cast<uint64_t>(numbers.at(kGeneratorSeed));
    generator->next_stream = static_cast<uint64_t>(numbers.at(kGeneratorStream));
  }
  if (state.data.position != nullptr) state.data.position->samples = numbers.at(kDataSamples);
  if (state.json.documents != nullptr) *state.json.documents = texts;
  if (state.numbers.numbers == nullptr) return;
  constexpr std::string_view kPrefix = kNumberPrefix;
  for (const auto& [name, number] : numbers) {
    if (!name.starts_with(kPrefix)) continue;
    (*state.numbers.numbers)[name.substr(kPrefix.size())] = number;
  }
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
