// The flags of `train`. They are an interface that scripts use.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "dtensor/base/dtype.h"
#include "dtensor/examples/llama/parallel.h"
#include "dtensor/examples/llama/ranks.h"

namespace dtensor::examples {

struct TrainOptions {
  std::string model;   // directory in Hugging Face form, or
  std::string config;  // a config.json, with values from `seed`
  uint64_t seed = 0;
  std::string data;
  int64_t batch = 8;
  int64_t seq = 128;
  int64_t steps = 100;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double clip_norm = std::numeric_limits<double>::infinity();
  ParallelOptions parallel;
  RanksOptions ranks;
  std::string save;
  int64_t save_every = 0;  // 0: after the last step only
  std::string resume;
  std::string export_dir;
  std::string log;
  std::string dump_grads;
};

// nullopt where help was asked for and printed. ArgumentError naming the flag.
std::optional<TrainOptions> parse_train_options(int argc, char** argv);

}  // namespace dtensor::examples
