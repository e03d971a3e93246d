// Golden runs: what PyTorch and transformers computed in one process (tests/data/README.md), and
// running the example's program on the same input.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "dtensor/checkpoint/safetensors.h"
#include "dtensor/tensor/tensor.h"
#include "dtensor/tests/support/subprocess.h"

namespace dtensor::testing {

struct Golden {
  std::string name;
  std::string dir;   // config.json, model.safetensors
  std::string text;  // a file with the bytes that the run reads
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t steps = 0;
  std::vector<std::string> flags;  // of train: model, data, batch, seq, steps and the optimizer's
  std::vector<double> losses;
  std::vector<double> grad_norms;
};

// "tiny" or "uneven"; writes its text under TEST_TMPDIR.
Golden read_golden(const std::string& name);

// A tensor of expected.safetensors, as double.
std::vector<double> expected(const Golden& golden, const std::string& tensor);
std::vector<std::string> expected_names(const Golden& golden, const std::string& prefix);

struct LogLine {
  double loss = 0;
  double grad_norm = 0;
  double tokens_per_s = 0;
  int64_t bytes_sent = 0;
  int64_t peak_rss_bytes = 0;
};
struct Log {
  std::vector<int64_t> pids;
  std::string mesh;
  std::string comm;
  int64_t params = 0;
  int64_t first_step = 0;
  std::vector<LogLine> steps;
};
Log read_log(const std::string& path);

// examples/llama/train with the golden's flags and these.
ProcessResult run_train(const Golden& golden, const std::vector<std::string>& flags);

// The largest |got - want| of a tensor over its largest |want|, of all tensors with a prefix.
double worst_error(const Golden& golden, const std::string& prefix, const std::string& file);

}  // namespace dtensor::testing
