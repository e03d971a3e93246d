#include "dtensor/tests/support/run_ranks.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "dtensor/base/context.h"

namespace dtensor::testing {
namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  int running = 0;
  std::exception_ptr first_failure;
};

void run_rank(std::unique_ptr<comm::Comm>& comm, const RankFunction& f, Progress& progress) {
  Context context;
  const ContextScope scope(context);
  std::exception_ptr failure;
  std::string what = "no std::exception";
  try {
    f(*comm);
  } catch (const std::exception& e) {
    failure = std::current_exception();
    what = e.what();
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    {  // before the abort: what it makes others throw comes later
      const std::lock_guard lock(progress.mutex);
      if (!progress.first_failure) progress.first_failure = failure;
    }
    comm->abort("rank " + std::to_string(comm->rank()) + " threw: " + what);
  }
  std::unique_ptr<comm::Comm> gone;  // after the mutex is free: its destructor may wait
  const std::lock_guard lock(progress.mutex);
  gone = std::move(comm);
}

}  // namespace

void run_ranks(std::vector<std::unique_ptr<comm::Comm>> world, const RankFunction& f,
               RunOptions options) {
  Progress progress;
  progress.running = static_cast<int>(world.size());
  std::vector<std::thread> threads;
  threads.reserve(world.size());
  for (auto& comm : world) {
    threads.emplace_back([&comm, &f, &progress] {
      run_rank(comm, f, progress);  // ends the rank's Comm, so that nobody waits for it
      const std::lock_guard lock(progress.mutex);
      --progress.running;
      progress.changed.notify_all();
    });
  }
  {
    std::unique_lock lock(progress.mutex);
    const auto ended = [&] { return progress.running == 0; };
    if (!progress.changed.wait_for(lock, options.limit, ended)) {
      for (auto& comm : world) {
        if (comm) comm->abort("run_ranks: the limit of this test passed");
      }
      if (!progress.changed.wait_for(lock, std::chrono::seconds(30), ended)) {
        std::fprintf(stderr, "run_ranks: %d of %zu ranks do not return\n", progress.running,
                     world.size());
        std::abort();
      }
    }
  }
  for (auto& thread : threads) thread.join();
  if (progress.first_failure) std::rethrow_exception(progress.first_failure);
}

void run_ranks(int size, const RankFunction& f, const comm::local::WorldOptions& world,
               RunOptions options) {
  run_ranks(comm::local::make_world(size, world), f, options);
}

}  // namespace dtensor::testing
