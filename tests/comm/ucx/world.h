// Worlds over UCX in one process, for tests: ranks are threads that meet at a memory store.

#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/comm/store.h"
#include "dtensor/comm/ucx/ucx.h"

namespace dtensor::testing {

// Without shared memory. `tls` are UCX's transports.
inline std::vector<std::unique_ptr<comm::Comm>> ucx_world(
    int size, const std::string& tls, const std::string& max_message = "1048576") {
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

}  // namespace dtensor::testing
