// How long it takes until all others know that a rank is lost: worlds of local processes that
// all-reduce without pause, until rank 2 is killed, or stopped.
//   bazel run //bench:failure_bench [RANKS=4] [COMM=gloo] [RUNS=30]
// Both times are of one machine's clock: just before the signal, and when wait() has thrown. Given
// is the time of the last rank that throws: median and largest of all runs.

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/launch.h"

namespace dtensor {
namespace {

namespace fs = std::filesystem;
constexpr int kVictim = 2;
constexpr int64_t kCount = 256 * 1024;

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void write(const fs::path& path, int64_t value) {
  std::ofstream(path.string() + ".new") << value << std::flush;
  fs::rename(path.string() + ".new", path);
}

int64_t read(const fs::path& path) {
  int64_t value = -1;
  std::ifstream(path) >> value;
  return value;
}

int be_rank(const fs::path& directory, int signal) {
  comm::register_all();
  const auto world = comm::from_environment();
  const std::string rank = std::to_string(world->rank());
  std::vector<float> x(kCount, 1);
  const comm::Buffer buffer{x.data(), kCount, DType::kFloat32};
  std::thread end;
  try {
    for (int round = 0;; ++round) {
      if (round == 20 && world->rank() == kVictim) {
        end = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          write(directory / "signal", now());
          kill(getpid(), signal);
        });
      }
      world->all_reduce(buffer, buffer, comm::ReduceOp::kMax).wait();
    }
  } catch (const comm::CommError&) {
    write(directory / rank, now());
  }
  if (end.joinable()) end.join();
  return 1;
}

// Milliseconds until the last of the others knew.
double measure(const std::string& program, int ranks, const std::string& comm, int signal) {
  std::string directory = (fs::temp_directory_path() / "failure_bench.XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return -1;
  comm::LaunchOptions o;
  o.argv = {program, "rank", directory, std::to_string(signal)};
  o.size = ranks;
  o.comm = comm;
  o.timeout = std::chrono::seconds(60);
  comm::launch_local(o);
  int64_t last = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r != kVictim) last = std::max(last, read(fs::path(directory) / std::to_string(r)));
  }
  const double took = static_cast<double>(last - read(fs::path(directory) / "signal")) / 1e6;
  fs::remove_all(directory);
  return took;
}

int run(const std::vector<std::string>& args) {
  if (args.size() == 4 && args[1] == "rank") return be_rank(args[2], std::stoi(args[3]));
  const int ranks = args.size() > 1 ? std::stoi(args[1]) : 4;
  const std::string comm = args.size() > 2 ? args[2] : "gloo";
  const int runs = args.size() > 3 ? std::stoi(args[3]) : 30;
  const std::string with_limit =
      comm + (comm.find("://") == std::string::npos ? "://?" : "&") + "liveness=1";
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  for (const int signal : {SIGKILL, SIGSTOP}) {
    std::vector<double> times;
    for (int i = 0; i < runs; ++i) times.push_back(measure(program, ranks, with_limit, signal));
    std::ranges::sort(times);
    fmt::print(
        "{} of one of {} ranks over {}: all others know after {:.1f} ms, at most {:.1f} ms ({} "
        "runs)\n",
        signal == SIGKILL ? "SIGKILL" : "SIGSTOP (liveness limit 1 s)", ranks, comm,
        times[times.size() / 2], times.back(), runs);
  }
  return 0;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return dtensor::run({argv, argv + argc}); }
