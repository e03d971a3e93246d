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

// As a run leaves it that was killed while it wrote.
bool ends_within_a_line(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

RunLog::RunLog(const std::string& path, const RunSteps& steps)
    : path_(path), steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1) {
  if (path.empty()) return;
  const bool cut = steps.resumed && ends_within_a_line(path);
  file_.open(path, steps.resumed ? std::ios::app : std::ios::trunc);
  if (cut) file_ << '\n';
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
                    parameters, steps_.first));
  fmt::print("{:.2f}M parameters on {}, steps {} to {}\n", static_cast<double>(parameters) / 1e6,
             mesh.empty() ? "one process" : mesh + " over " + comm, steps_.first, steps_.end);
  std::fflush(stdout);
}

void RunLog::step(const StepRecord& r) {
  write(fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"tokens_per_s":{},"bytes_sent":{},"peak_rss_bytes":{},"waited_s":{}}})",
      r.step, number(r.loss), number(r.grad_norm), number(r.tokens_per_s), r.bytes_sent,
      r.peak_rss_bytes, number(r.waited_s)));
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const auto done = static_cast<double>(r.step + 1 - steps_.first);
  const double left = elapsed / done * static_cast<double>(steps_.end - r.step - 1);
  fmt::print("{}step {:>5}/{}  loss {:.4f}  {:>8.0f} tokens/s  {} left  {} sent{}",
             terminal_ ? "\r" : "", r.step + 1, steps_.end, r.loss, r.tokens_per_s, duration(left),
             size(static_cast<double>(r.bytes_sent)),
             terminal_ && r.step + 1 < steps_.end ? "    " : "\n");
  std::fflush(stdout);
}

}  // namespace dtensor::examples
