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
  double waited_s = 0;         // by rank 0, for gathers and reductions of fully_shard
};

struct RunSteps {
  int64_t first = 0;
  int64_t end = 0;
  bool resumed = false;
};

class RunLog {
 public:
  // `path` empty: no file. A resumed run adds to the file, any other begins it. ArgumentError where
  // it cannot be written.
  RunLog(const std::string& path, const RunSteps& steps);
  void start(const std::vector<int64_t>& pids, const std::string& mesh, const std::string& comm,
             int64_t parameters);
  void step(const StepRecord& record);

 private:
  void write(const std::string& line);

  std::string path_;
  std::ofstream file_;
  RunSteps steps_;
  bool terminal_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace dtensor::examples
