#include "dtensor/examples/llama/run_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "dtensor/base/error.h"

namespace dtensor::examples {
namespace {

std::string number(double value) {  // JSON has no NaN and no infinity
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string size(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace

RunLog::RunLog(const std::string& path, int64_t first_step, int64_t steps)
    : path_(path), first_step_(first_step), steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {
  if (path.empty()) return;
  file_.open(path, std::ios::trunc);
  if (!file_)
    throw ArgumentError("--log " + path +
                        ": cannot be written; give a path in a folder that exists");
}

void RunLog::write(const std::string& line) {
  if (!file_.is_open()) return;
  file_ << line << '\n' << std::flush;
  if (!file_) throw Error("--log " + path_ + ": writing failed; is the disk full?");
}

void RunLog::start(const std::vector<int64_t>& pids, const std::string& mesh,
                   const std::string& comm, int64_t parameters) {
  write(fmt::format(R"({{"event":"start","pids":[{}],"mesh":{},"comm":{},"params":{},"step":{}}})",
                    fmt::join(pids, ","), nlohmann::json(mesh).dump(), nlohmann::json(comm).dump(),
                    parameters, first_step_));
  fmt::print("{:.2f}M parameters on {}, steps {} to {}\n", static_cast<double>(parameters) / 1e6,
             mesh.empty() ? "one process" : mesh + " over " + comm, first_step_, steps_);
  std::fflush(stdout);
}

void RunLog::step(const StepRecord& r) {
  write(fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"tokens_per_s":{},"bytes_sent":{},"peak_rss_bytes":{}}})",
      r.step, number(r.loss), number(r.grad_norm), number(r.tokens_per_s), r.bytes_sent,
      r.peak_rss_bytes));
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const auto done = static_cast<double>(r.step + 1 - first_step_);
  const double left = elapsed / done * static_cast<double>(steps_ - r.step - 1);
  fmt::print("{}step {:>5}/{}  loss {:.4f}  {:>8.0f} tokens/s  {} left  {} sent{}",
             terminal_ ? "\r" : "", r.step + 1, steps_, r.loss, r.tokens_per_s, duration(left),
             size(static_cast<double>(r.bytes_sent)),
             terminal_ && r.step + 1 < steps_ ? "    " : "\n");
  std::fflush(stdout);
}

}  // namespace dtensor::examples
