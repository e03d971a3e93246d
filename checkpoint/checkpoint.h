// Checkpoints: saved without a message, loaded on any mesh.
// A checkpoint is a directory per attempt under the run's directory, step-<step>.<id>, with one
// safetensors file and one commit record per rank (docs/checkpoint.md).

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/optim/optimizer.h"

namespace dtensor::checkpoint {

// What is saved and loaded. Either may be left out. They are references, so that
// {.model = model, .optimizer = optimizer} reads as it should.
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
struct State {
  ModelRef model = {};
  OptimizerRef optimizer = {};
};

// Every rank calls it; no message is sent, no barrier met. `step` is the number of updates done.
// CheckpointError names the file and the system's reason; earlier steps are untouched.
void save(const std::string& run_dir, int64_t step, const State& state);

struct LoadOptions {
  std::optional<int64_t> step = {};  // this one; else the newest complete
  int64_t buffer_bytes = 16 << 20;   // the most that is read at once
};
// Loads into the tensors that `state` has, on any mesh and placements, and returns the step;
// nullopt where the directory holds no complete checkpoint and none was named. Rank 0 of the
// model's mesh chooses and tells the others. All metadata is checked before anything is written.
std::optional<int64_t> load(const std::string& run_dir, const State& state,
                            const LoadOptions& options = {});

// Hugging Face: config.json is the caller's; these are the tensors, names verbatim.
// Reads model.safetensors, or model.safetensors.index.json and the files it names. CheckpointError
// listing missing, unexpected and mismatched tensors. Tied parameters need one of their names.
void import_hugging_face(const std::string& dir, nn::Module& model);
struct ExportOptions {
  std::string config_json = {};  // written to config.json where not empty
};
// Every rank calls it (whole tensors are gathered one at a time); rank 0 writes.
void export_hugging_face(const std::string& dir, nn::Module& model,
                         const ExportOptions& options = {});

}  // namespace dtensor::checkpoint
