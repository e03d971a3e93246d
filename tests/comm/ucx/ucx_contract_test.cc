// The contract of a Comm over UCX, with ranks as threads that meet at a memory store.

#include <exception>
#include <mutex>
#include <thread>

#include "dtensor/comm/store.h"
#include "dtensor/comm/ucx/ucx.h"
#include "dtensor/tests/comm/contract.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> world_of(int size, const std::string& tls,
                                                  const std::string& max_message = "1048576") {
  const std::shared_ptr<comm::Store> store = comm::make_memory_store();
  std::vector<std::unique_ptr<comm::Comm>> world(static_cast<size_t>(size));
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::Endpoint e;
        e.scheme = "ucx";
        e.rank = r;
        e.size = size;
        e.options["tls"] = tls;
        e.options["shm"] = "off";
        e.options["max_message"] = max_message;
        world[static_cast<size_t>(r)] = comm::ucx::connect(e, store);
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

std::vector<std::unique_ptr<comm::Comm>> posix(int size) {
  return world_of(size, "posix,self,tcp");
}
std::vector<std::unique_ptr<comm::Comm>> tcp(int size) { return world_of(size, "tcp"); }

// Every message is split at a limit that no size in the tests is a multiple of.
std::vector<std::unique_ptr<comm::Comm>> split(int size) {
  return world_of(size, "posix,self,tcp", "1000");
}

INSTANTIATE_TEST_SUITE_P(Posix, CommContract, ::testing::ValuesIn(worlds("ucx_posix", posix)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Tcp, CommContract, ::testing::ValuesIn(worlds("ucx_tcp", tcp)),
                         world_name);
INSTANTIATE_TEST_SUITE_P(Split, CommContract,
                         ::testing::Values(CommWorld{"ucx_split", 2, split},
                                           CommWorld{"ucx_split", 3, split}),
                         world_name);

}  // namespace
}  // namespace dtensor::testing
