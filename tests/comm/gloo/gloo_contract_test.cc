// The contract of a Comm over Gloo, with ranks as threads that meet at a memory store.

#include <exception>
#include <mutex>
#include <thread>

#include "dtensor/base/context.h"
#include "dtensor/comm/gloo/gloo.h"
#include "dtensor/comm/store.h"
#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> world_of(int size, const std::string& max_message) {
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
        e.options["max_message"] = max_message;
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

std::vector<std::unique_ptr<comm::Comm>> plain(int size) { return world_of(size, "1048576"); }

// Aluminum#229: every message is split at a limit that no size in the tests is a multiple of.
std::vector<std::unique_ptr<comm::Comm>> split(int size) { return world_of(size, "1000"); }

INSTANTIATE_TEST_SUITE_P(Gloo, CommContract, ::testing::ValuesIn(worlds("gloo", plain)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(GlooSplit, CommContract, ::testing::ValuesIn(worlds("gloo_split", split)),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
