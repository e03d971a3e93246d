// One rank of failure_test: does what its first argument says and prints what became of it, a line
// each. Waits for a file that the test makes where it has to wait for the test.

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/backends.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"

namespace dtensor {
namespace {

using comm::Comm;
using comm::CommError;

constexpr int kVictim = 2;
constexpr int64_t kCount = (8 << 20) / 4;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void report(const CommError& e) {
  const auto& f = e.fields();
  say("error kind=" + std::string(name_of(f.kind)) + " culprit=" + std::to_string(f.culprit) +
      " proved=" + std::to_string(f.proved ? 1 : 0) + " op=" + std::string(name_of(f.op.op)) +
      " label=" + f.op.label + " bytes=" + std::to_string(f.op.bytes) +
      " sequenced=" + std::to_string(f.op.sequence >= 0 ? 1 : 0) +
      " timed=" + std::to_string(f.elapsed.count() > 0 ? 1 : 0) + " comm=" + f.comm);
  say(e.what());
}

void wait_for_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct Vectors {
  explicit Vectors(int64_t count)
      : in(static_cast<size_t>(count), 1.0F), out(static_cast<size_t>(count)) {}
  comm::Work sum(Comm& c, const comm::CallOptions& options = {}) {
    const auto n = static_cast<int64_t>(in.size());
    return c.all_reduce({in.data(), n, DType::kFloat32}, {out.data(), n, DType::kFloat32},
                        comm::ReduceOp::kSum, options);
  }
  std::vector<float> in;
  std::vector<float> out;
};

// All-reduces until one fails, and returns its error.
CommError sum_until_failure(Comm& c, Vectors& v, std::chrono::nanoseconds deadline) {
  for (int64_t i = 0;; ++i) {
    try {
      v.sum(c, {.deadline = Deadline::after(deadline), .label = "gradients"}).wait();
    } catch (const CommError& e) {
      return e;
    }
    if (i == 0) say("ready");
  }
}

void loop(const std::string& directory) {
  auto world = comm::from_environment();
  Vectors v(kCount);
  const CommError first = sum_until_failure(*world, v, std::chrono::seconds(300));
  v.out.assign(v.out.size(), 7.0F);
  report(first);
  try {
    v.sum(*world).wait();
    say("called again: no error");
  } catch (const CommError& e) {
    say(e.fields().culprit == first.fields().culprit && e.fields().kind == first.fields().kind
            ? "called again: the first error"
            : "called again: another error");
  }
  std::thread a([&] { world->abort("one"); });
  std::thread b([&] { world->abort("two"); });
  a.join();
  b.join();
  wait_for_file(directory + "/all-threw");
  world.reset();
  for (const float x : v.out) {
    if (x != 7.0F) return say("written to after the throw");
  }
  say("untouched");
}

void subgroup(const std::string& directory) {
  auto world = comm::from_environment();
  const int rank = world->rank();
  std::unique_ptr<Comm> three;
  std::unique_ptr<Comm> pair;
  if (rank >= 1) three = world->group(std::vector<int>{1, 2, 3}, "three");
  if (rank <= 1) pair = world->group(std::vector<int>{0, 1}, "pair");
  say("ready");
  if (rank == kVictim) pause();
  wait_for_file(directory + "/killed");
  Vectors v(1000);
  if (three) {
    try {
      v.sum(*three, {.label = "gradients"}).wait();
    } catch (const CommError& e) {
      report(e);
    }
  }
  if (pair) {
    v.sum(*pair).wait();
    say("the pair has " + std::to_string(static_cast<int>(v.out.back())));
  }
}

void stall(const std::string&) {
  auto world = comm::from_environment();
  Vectors v(1000);
  report(sum_until_failure(*world, v, std::chrono::seconds(2)));
}

void regenerate(const std::string&) {
  auto world = comm::from_environment();
  Vectors v(kCount);
  report(sum_until_failure(*world, v, std::chrono::seconds(300)));
  const int rank = world->rank() < kVictim ? world->rank() : world->rank() - 1;
  const std::string store = std::getenv("DTENSOR_STORE");
  const std::string url = std::getenv("DTENSOR_COMM");
  const bool has_options = url.find('?') != std::string::npos;
  auto next = comm::create(url + (has_options ? "&" : "://?") + "rank=" + std::to_string(rank) +
                           "&size=3&generation=1&timeout=60&store=" + store);
  v.sum(*next).wait();
  say("the new world has " + std::to_string(static_cast<int>(v.out.back())) + " of generation " +
      std::to_string(next->generation()));
  next->shutdown();
}

void join(const std::string&) {
  auto world = comm::from_environment();
  say("joined a world of " + std::to_string(world->size()));
}

int run(const std::string& scenario, const std::string& directory) {
  comm::register_all();
  const std::vector<std::pair<std::string, std::function<void(const std::string&)>>> all = {
      {"loop", loop},
      {"subgroup", subgroup},
      {"stall", stall},
      {"regenerate", regenerate},
      {"join", join}};
  for (const auto& [name, f] : all) {
    if (name != scenario) continue;
    try {
      f(directory);
      return 0;
    } catch (const CommError& e) {
      report(e);
      return 3;
    } catch (const std::exception& e) {
      say(std::string("exception ") + e.what());
      return 4;
    }
  }
  return 2;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) { return argc == 3 ? dtensor::run(argv[1], argv[2]) : 2; }
