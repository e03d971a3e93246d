// Generator: greedy continuation of a prompt, with cached keys and values. The same code on one
// process and on a mesh.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/examples/llama/model.h"
#include "dtensor/mesh/device_mesh.h"

namespace dtensor::examples {

struct Generation {
  std::vector<int64_t> ids;  // new ones, the stop id included
  // Of the last prompt position: the five largest logits with their ids, largest first.
  std::vector<std::pair<int64_t, float>> last_logits_top5;
  double tokens_per_s = 0;  // of the new ones, the prompt's time not counted
  // Ended before max_new and without the stop id: the model has no further position.
  bool at_limit = false;
};

struct GenerateOptions {
  int64_t max_new = 32;
  std::optional<int64_t> stop_id = {};
};

// Called on every rank of the mesh with the same prompt; the same answer on every rank.
// ArgumentError for an empty prompt, an id outside the vocabulary, or more positions than the model
// has: with a stop id only where the prompt alone has more. Error where logits are NaN.
Generation generate(Llama& model, const LlamaConfig& config, const DeviceMesh& mesh,
                    const std::vector<int64_t>& prompt, const GenerateOptions& options);

// The ids by value, largest first; of equal values the lower id first.
std::vector<std::pair<int64_t, float>> largest(const Tensor& logits, int64_t count);

}  // namespace dtensor::examples
