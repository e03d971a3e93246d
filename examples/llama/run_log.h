// RunLog: what rank 0 tells of a training run: a file of JSON lines, and a line for people.

#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace dtensor::examples {

struct StepRecord {
  int64_t step = 0;
  double loss = 0;             // mean over the global batch, before this step's update
  double grad_norm = 0;        // before clipping
  double tokens_per_s = 0;     // of all ranks
  int64_t bytes_sent = 0;      // on the wire, by all ranks, in this step
  int64_t peak_rss_bytes = 0;  // of the rank with the largest
};

class RunLog {
 public:
  // `path` empty: no file. ArgumentError where it cannot be written.
  RunLog(const std::string& path, int64_t first_step, int64_t steps);
  void start(const std::vector<int64_t>& pids, const std::string& mesh, const std::string& comm,
             int64_t parameters);
  void step(const StepRecord& record);

 private:
  void write(const std::string& line);

  std::string path_;
  std::ofstream file_;
  int64_t first_step_;
  int64_t steps_;
  bool terminal_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace dtensor::examples
