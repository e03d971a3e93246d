#include "dtensor/tools/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

namespace dtensor::tools {

Progress::Progress(std::ostream& err, std::string what, int64_t total_bytes, ShowProgress show)
    : err_(err),
      what_(std::move(what)),
      total_bytes_(std::max<int64_t>(total_bytes, 1)),
      shown_(show == ShowProgress::kAlways || (&err == &std::cerr && isatty(STDERR_FILENO) != 0)) {
  add(0);
}

Progress::~Progress() {
  if (shown_) err_ << "\n";
}

void Progress::add(int64_t bytes) {
  constexpr int kWidth = 40;
  done_bytes_ += bytes;
  const auto percent = static_cast<int>(std::min<double>(
      100.0 * static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_), 100));
  if (!shown_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  const auto filled = static_cast<size_t>(percent * kWidth / 100);
  err_ << fmt::format("\r{} [{:<{}}] {:3}% of {:.1f} MiB", what_, std::string(filled, '#'), kWidth,
                      percent, static_cast<double>(total_bytes_) / (1 << 20))
       << std::flush;
}

}  // namespace dtensor::tools
