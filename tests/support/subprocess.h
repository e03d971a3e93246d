// Subprocess: a program run by a test, with its output, its status and a bound on its time.

#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace dtensor::testing {

struct ProcessResult {
  int status = -1;  // exit status, or 128 + signal; -1 where it was killed at the bound
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> environment = {};  // set besides the test's own
  std::chrono::seconds bound{300};
};

class Subprocess {
 public:
  // argv[0] is a path. Throws std::runtime_error where it cannot be started.
  explicit Subprocess(const std::vector<std::string>& argv, const ProcessOptions& options = {});
  ~Subprocess();  // kills it, with all processes of its group
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  int pid() const { return pid_; }
  // Reads until `text` stands in the output (stdout), or the program or the bound ends: false.
  bool wait_for_output(const std::string& text);
  ProcessResult wait();
  // Are no processes of its group left? Waits some seconds for those that are on their way out (a
  // sanitizer's helper that is killed with its program).
  bool group_is_gone() const;

 private:
  bool pump(std::chrono::milliseconds slice);  // false once both pipes are closed

  int pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  bool reaped_ = false;
  std::chrono::steady_clock::time_point end_;
  ProcessResult result_;
};

// Start and wait.
ProcessResult run_process(const std::vector<std::string>& argv, const ProcessOptions& options = {});

}  // namespace dtensor::testing
