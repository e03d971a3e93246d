// A progress bar on stderr: shown where that is a terminal, or where it was asked for.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace dtensor::tools {

enum class ShowProgress : uint8_t { kOnTerminal, kAlways };

class Progress {
 public:
  Progress(std::ostream& err, std::string what, int64_t total_bytes, ShowProgress show);
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(int64_t bytes);

 private:
  std::ostream& err_;
  std::string what_;
  int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  int shown_percent_ = -1;
  bool shown_;
};

}  // namespace dtensor::tools
