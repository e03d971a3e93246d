// One rank of the failure suite: does what the scenario of its seed says and prints what became of
// it, a line each.
//   faulty_rank seed SEED DIRECTORY       one rank of the world gets into trouble
//   faulty_rank seed cut DIRECTORY        the test cuts a rank off
//   faulty_rank mismatch KIND DIRECTORY   one rank makes other calls than the rest

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/comm.h"
#include "dtensor/comm/create.h"
#include "dtensor/tests/comm/failures/operations.h"
#include "dtensor/tests/comm/failures/scenario.h"
#include "dtensor/tests/comm/values.h"

namespace dtensor::testing {
namespace {

using comm::Comm;
using comm::CommError;
using comm::ReduceOp;
using comm::Segments;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void report(const CommError& e) {
  const auto& f = e.fields();
  say("error kind=" + std::string(name_of(f.kind)) + " culprit=" + std::to_string(f.culprit) +
      " proved=" + std::to_string(f.proved ? 1 : 0) + " detail=" + f.detail);
  say(e.what());
}

void wait_for_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Names in /dev/shm that this process uses: nobody may leave one behind.
void say_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find("/dev/shm/");
    if (at != std::string::npos && line.find("(deleted)") == std::string::npos) {
      say("shm " + line.substr(at));
    }
  }
}

void shut_down_all_sockets() {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), &closedir);
  while (const dirent* entry = readdir(directory.get())) {
    shutdown(std::atoi(entry->d_name), SHUT_RDWR);  // nothing for what is no socket
  }
}

void cause(Fault fault) {
  switch (fault) {
    case Fault::kKill:
      kill(getpid(), SIGKILL);
      return;
    case Fault::kStop:
      kill(getpid(), SIGSTOP);
      return;
    case Fault::kExit:
      _exit(0);
    case Fault::kCloseSockets:
      return shut_down_all_sockets();
    default:
      return;
  }
}

// The world of the others, with the next generation.
void form_next(const Comm& world, int victim, const std::string& store) {
  const int rank = world.rank() < victim ? world.rank() : world.rank() - 1;
  const std::string variable = std::getenv("DTENSOR_COMM");
  const std::string url = variable.find("://") == std::string::npos ? variable + "://" : variable;
  const std::string sign = url.find('?') == std::string::npos ? "?" : "&";
  auto next = comm::create(url + sign + "rank=" + std::to_string(rank) +
                           "&size=" + std::to_string(world.size() - 1) +
                           "&generation=1&timeout=20&store=" + store);
  OperationRun run(*next, 0, 1000);
  run.issue(0).wait();
  say(run.check(0).empty() ? "next generation well" : "WRONG " + run.check(0));
  next->shutdown();
}

// Calls until one fails, or for six rounds where nothing is to fail.
std::optional<CommError> call_until_failure(const Scenario& s, Comm& world, OperationRun& run) {
  const bool mine = world.rank() == s.victim;
  std::thread trouble;
  std::optional<CommError> error;
  for (int64_t round = 0; !error && (s.fault != Fault::kSlow || round < 6); ++round) {
    // The limit that it is to be late by is a time, and nothing else happens when it is over.
    if (mine && s.fault == Fault::kSlow && round % 3 == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    }
    if (mine && round == s.round) {
      trouble = std::thread([&] {
        std::this_thread::sleep_for(s.delay);
        cause(s.fault);
      });
    }
    try {
      run.issue(round).wait();
      if (const std::string wrong = run.check(round); !wrong.empty()) say("WRONG " + wrong);
    } catch (const CommError& e) {
      error = e;
    }
  }
  if (trouble.joinable()) trouble.join();
  return error;
}

void call_again(Comm& world, const CommError& first) {
  try {
    world.barrier().wait();
    say("again: no error");
  } catch (const CommError& e) {
    say(std::string(e.what()) == first.what() ? "again the first error" : "again: another error");
  }
}

int run_seed(int seed, const std::string& directory) {
  const Scenario s = scenario_of(seed);
  auto world = comm::from_environment();
  const int rank = world->rank();
  const bool mine = rank == s.victim;
  std::vector<int> others;
  for (int r = 0; r < s.size; ++r) {
    if (r != s.victim) others.push_back(r);
  }
  std::unique_ptr<Comm> group;
  if (!mine) group = world->group(others, "others");
  say_shared_memory();
  say("joined");
  wait_for_file(directory + "/go");
  if (mine && s.fault == Fault::kExitBefore) _exit(0);
  if (mine && s.fault == Fault::kLeaveBefore) return 0;

  OperationRun run(*world, s.operation, s.count);
  const auto error = call_until_failure(s, *world, run);
  if (!error) {
    world->shutdown();
    say("all well");
    return 0;
  }
  run.poison();
  report(*error);
  if (mine) return 0;
  call_again(*world, *error);
  OperationRun of_group(*group, 0, 1000);
  of_group.issue(1).wait();
  say(of_group.check(1).empty() ? "others well" : "WRONG " + of_group.check(1));
  form_next(*world, s.victim, "file:" + directory + "/next");
  group.reset();
  world.reset();
  say(run.untouched() ? "untouched" : "WRONG: written to after the throw");
  return 0;
}

void sum(Comm& comm, int64_t count, const comm::CallOptions& options = {}) {
  std::vector<float> x(static_cast<size_t>(count), 1);
  comm.all_reduce(view(std::as_const(x)), view(x), ReduceOp::kSum, options).wait();
}

void gather(Comm& comm, const comm::CallOptions& options = {}) {
  const std::vector<float> in(10, 1);
  std::vector<float> out(in.size() * static_cast<size_t>(comm.size()));
  comm.all_gather_v(view(in), view(out), Segments::even(10 * comm.size(), comm.size()), options)
      .wait();
}

// Rank 1 is the one that differs.
void make_other_calls(const std::string& kind, Comm& comm) {
  const bool differs = comm.rank() == 1;
  comm.barrier().wait();
  if (kind == "operation") {
    differs ? gather(comm) : sum(comm, 10);
  } else if (kind == "dtype") {
    std::vector<float> f(10, 1);
    std::vector<int32_t> i(10, 1);
    const comm::Buffer x = differs ? view(i) : view(f);
    comm.all_reduce(x, x, ReduceOp::kSum).wait();
  } else if (kind == "reduction") {
    std::vector<float> x(10, 1);
    comm.all_reduce(view(std::as_const(x)), view(x), differs ? ReduceOp::kMax : ReduceOp::kSum)
        .wait();
  } else if (kind == "root") {
    std::vector<float> x(10, 1);
    comm.broadcast(view(x), differs ? 1 : 0).wait();
  } else if (kind == "counts") {
    sum(comm, differs ? 200'000 : 100'000);
  } else if (kind == "order") {
    for (const int k : {0, 1}) (k == 0) == differs ? gather(comm) : sum(comm, 10);
  } else if (kind == "label") {
    gather(comm, {.label = differs ? "B" : "A"});
  } else if (kind == "more") {
    if (differs) sum(comm, 10);
    comm.shutdown();
  }
}

int run_mismatch(const std::string& kind) {
  auto world = comm::from_environment();
  try {
    make_other_calls(kind, *world);
  } catch (const CommError& e) {
    report(e);
    return 0;
  }
  say("no error");
  return 0;
}

// Calls until the test cuts this rank off from others.
int run_until_cut() {
  auto world = comm::from_environment();
  say("joined");
  OperationRun run(*world, 0, 1000);
  for (int64_t round = 0;; ++round) {
    try {
      run.issue(round).wait();
      if (const std::string wrong = run.check(round); !wrong.empty()) say("WRONG " + wrong);
    } catch (const CommError& e) {
      report(e);
      return 0;
    }
    if (round == 5) say("some rounds are over");
  }
}

int run(const std::vector<std::string>& args) {
  comm::register_all();
  try {
    if (args[0] == "seed" && args[1] == "cut") return run_until_cut();
    if (args[0] == "seed") return run_seed(std::stoi(args[1]), args[2]);
    return run_mismatch(args[1]);
  } catch (const std::exception& e) {
    say(std::string("exception ") + e.what());
    return 4;
  }
}

}  // namespace
}  // namespace dtensor::testing

int main(int argc, char** argv) {
  return argc == 4 ? dtensor::testing::run({argv + 1, argv + argc}) : 2;
}
