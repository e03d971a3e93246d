#include "dtensor/tests/comm/gloo_world.h"

#include <exception>
#include <mutex>
#include <thread>

#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/comm/store.h"

namespace dtensor::testing {

std::vector<std::unique_ptr<comm::Comm>> gloo_world(
    int size, const std::map<std::string, std::string>& options,
    const std::vector<std::map<std::string, std::string>>& of_ranks) {
  const std::shared_ptr<comm::Store> store = comm::make_memory_store();
  std::vector<std::unique_ptr<comm::Comm>> world(static_cast<size_t>(size));
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::Endpoint e;
        e.scheme = "gloo";
        e.rank = r;
        e.size = size;
        e.options = options;
        if (!of_ranks.empty()) {
          const auto& own = of_ranks[static_cast<size_t>(r)];
          e.options.insert(own.begin(), own.end());
        }
        world[static_cast<size_t>(r)] = comm::gloo::connect(e, store);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    });
  }
  for (auto& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  return world;
}

}  // namespace dtensor::testing
