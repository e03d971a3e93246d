#include "dtensor/examples/llama/ranks.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/deadline.h"
#include "dtensor/base/error.h"
#include "dtensor/base/thread_pool.h"
#include "dtensor/comm/backends.h"
#include "dtensor/comm/create.h"
#include "dtensor/comm/launch.h"
#include "dtensor/comm/local/local.h"

namespace dtensor::examples {
namespace {

// A rank that ends by an error ends the others too: they are told, so that none waits for it.
int guarded(const RanksOptions& options, comm::Comm* world,
            const std::function<void(const DeviceMesh&)>& rank_main) {
  Context& context = Context::current();
  context.slot<DefaultDeadline>().duration = options.timeout;
  try {
    context.slot<CurrentThreadPool>().pool = std::make_shared<ThreadPool>(options.threads);
    rank_main(world == nullptr ? DeviceMesh() : DeviceMesh(*world, *options.mesh));
    if (world != nullptr) world->shutdown();
    return 0;
  } catch (const std::exception& error) {
    const std::string who = world == nullptr ? "" : fmt::format(" rank {}:", world->rank());
    std::fputs(fmt::format("{}:{} {}\n", options.program, who, error.what()).c_str(), stderr);
    if (world != nullptr) world->abort(fmt::format("rank {}: {}", world->rank(), error.what()));
    return 1;
  }
}

int run_threads(const RanksOptions& options,
                const std::function<void(const DeviceMesh&)>& rank_main) {
  auto worlds = comm::local::make_world(options.mesh->size());
  std::vector<int> status(worlds.size(), 1);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < worlds.size(); ++r) {
    threads.emplace_back([&, r] {
      Context context;
      const ContextScope scope(context);
      status[r] = guarded(options, worlds[r].get(), rank_main);
    });
  }
  for (auto& t : threads) t.join();
  for (const int s : status) {
    if (s != 0) return s;
  }
  return 0;
}

int run_as_rank(const RanksOptions& options,
                const std::function<void(const DeviceMesh&)>& rank_main) {
  Context::current().slot<DefaultDeadline>().duration = options.timeout;
  std::unique_ptr<comm::Comm> world;
  try {
    const bool is_url = options.comm.find("://") != std::string::npos;
    if (!is_url) setenv("DTENSOR_COMM", options.comm.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    world = is_url ? comm::create(options.comm) : comm::from_environment();
    if (world->size() != options.mesh->size()) {
      throw ArgumentError(
          fmt::format("--mesh has {} ranks, the launcher started {}; make them equal",
                      options.mesh->size(), world->size()));
    }
  } catch (const std::exception& error) {
    std::fputs(fmt::format("{}: {}\n", options.program, error.what()).c_str(), stderr);
    return 1;
  }
  return guarded(options, world.get(), rank_main);
}

}  // namespace

int run_ranks(const RanksOptions& options, int argc, char** argv,
              const std::function<void(const DeviceMesh&)>& rank_main) {
  comm::register_all();
  const auto get = [](const char* name) {
    return std::getenv(name);
  };  // NOLINT(concurrency-mt-unsafe)
  try {
    const comm::Environment environment = comm::read_environment(get);
    if (!options.mesh) {
      if (environment.size > 1) {
        throw ArgumentError(
            fmt::format("{} ranks were launched and no --mesh is given; "
                        "give one of {} ranks, for example --mesh dp={}",
                        environment.size, environment.size, environment.size));
      }
      return guarded(options, nullptr, rank_main);
    }
    if (environment.launched || options.comm.find("://") != std::string::npos) {
      return run_as_rank(options, rank_main);
    }
    if (options.comm == "local") return run_threads(options, rank_main);
    return comm::launch_local({.argv = std::vector<std::string>(argv, argv + argc),
                               .size = options.mesh->size(),
                               .comm = options.comm,
                               .output = comm::LaunchOutput::kPlain});
  } catch (const std::exception& error) {
    std::fputs(fmt::format("{}: {}\n", options.program, error.what()).c_str(), stderr);
    return 1;
  }
}

}  // namespace dtensor::examples
