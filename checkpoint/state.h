// What is saved and loaded, and its tensors by name.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtensor/base/philox.h"
#include "dtensor/checkpoint/data_position.h"
#include "dtensor/nn/module.h"
#include "dtensor/optim/ema.h"
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
struct EmaRef {
  EmaRef() = default;
  EmaRef(optim::Ema& e) : ema(&e) {}  // NOLINT(google-explicit-constructor)
  optim::Ema* ema = nullptr;
};
struct NumbersRef {
  NumbersRef() = default;
  NumbersRef(std::map<std::string, int64_t>& n)  // NOLINT(google-explicit-constructor)
      : numbers(&n) {}
  std::map<std::string, int64_t>* numbers = nullptr;
};

struct GeneratorRef {
  GeneratorRef() = default;
  GeneratorRef(Generator& g) : generator(&g) {}  // NOLINT(google-explicit-constructor)
  Generator* generator = nullptr;
};
struct DataRef {
  DataRef() = default;
  DataRef(DataPosition& p) : position(&p) {}  // NOLINT(google-explicit-constructor)
  DataPosition* position = nullptr;
};
struct JsonRef {
  JsonRef() = default;
  JsonRef(std::map<std::string, std::string>& d)  // NOLINT(google-explicit-constructor)
      : documents(&d) {}
  std::map<std::string, std::string>* documents = nullptr;
};

// Are the values of ranks that hold the same part of a tensor on a mesh taken to be equal, as its
// placement says, or is a CRC of each put into the records, so that whoever reads them sees which
// ranks differ? The CRC reads all that such a rank holds once more; no message is sent.
enum class Replicas : uint8_t { kTrusted, kCompared };

// Any of them may be left out. Buffers of the model are not part of it: they are computed.
struct State {
  ModelRef model = {};
  OptimizerRef optimizer = {};
  EmaRef ema = {};  // moving averages: one more tensor per parameter, in their own dtype
  // The program's own integers, equal on all ranks.
  NumbersRef numbers = {};
  // The random state: equal on all ranks that made the same calls.
  GeneratorRef generator = {};
  // Where the run is in its data, equal on all ranks.
  DataRef data = {};
  // JSON documents by name, equal on all ranks: a scheduler's state, the run's configuration.
  // They come back byte for byte.
  JsonRef json = {};
};

inline constexpr char kOptimizerPrefix[] = "optimizer.";
inline constexpr char kEmaPrefix[] = "optimizer.ema.";
inline constexpr char kOptimizerSteps[] = "optimizer.steps";
// Of a parameter that was updated in fewer steps: "optimizer.updates.w".
inline constexpr char kUpdatesPrefix[] = "optimizer.updates.";
inline constexpr char kNumberPrefix[] = "user.";
inline constexpr char kGeneratorSeed[] = "generator.seed";
inline constexpr char kGeneratorStream[] = "generator.next_stream";
inline constexpr char kDataSamples[] = "data.samples";

struct NamedTensor {
  std::string name;  // a parameter's, or optimizer.<state>.<parameter>
  DTensor value;     // a handle of the model's, the optimizer's, or the averages', own
};
struct NamedState {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> aliases;  // further name of a tied parameter -> its first
  std::map<std::string, int64_t> numbers;
  std::map<std::string, std::string> texts;  // JSON documents
};
// ArgumentError for two tensors of one name, a parameter without a name, or one of an optimizer or
// an Ema that is not the model's.
NamedState named_state(const State& state);

// ArgumentError for a document that is no JSON, and for a count that is negative.
void check_for_saving(const NamedState& state);
// The name of a number that counts something and is negative; empty where there is none. Of the
// program's own nothing is known.
std::string negative_count(const std::map<std::string, int64_t>& numbers);

// Puts back what is no tensor: the optimizer's steps, numbers, generator, position and documents.
// What the state wants of them must be there. `loaded` gives the name by which a tensor of the
// optimizer was stored, "" where it was left alone: then its parameter's number of updates is, too.
void restore(const State& state, const std::map<std::string, int64_t>& numbers,
             const std::map<std::string, std::string>& texts,
             const std::function<std::string(const std::string&)>& loaded);

// PlacementError naming the first tensor that is Partial: a value is loaded into R or S(d).
void refuse_partial(const NamedState& wanted);

}  // namespace dtensor::checkpoint
