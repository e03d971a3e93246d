// The URLs of comm/nccl, with a stand-in for the libraries: processes would meet in the same way.

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/comm/nccl/nccl.h"
#include "dtensor/comm/store.h"
#include "dtensor/tests/comm/nccl/stand_in.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {
namespace {

std::vector<std::unique_ptr<comm::Comm>> world_of(const std::string& scheme,
                                                  const std::string& cpu) {
  const std::shared_ptr<comm::Store> store = comm::make_memory_store();
  std::vector<std::unique_ptr<comm::Comm>> world(2);
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::Endpoint e;
        e.scheme = scheme;
        e.rank = r;
        e.size = 2;
        e.options["cpu"] = cpu;
        world[static_cast<size_t>(r)] = comm::nccl::connect(e, store);
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

TEST(NcclConnect, HybridTakesBothKindsOfMemoryOverEitherNetwork) {
  for (const std::string cpu : {"gloo", "ucx"}) {
    run_ranks(world_of("hybrid", cpu), [](comm::Comm& comm) {
      EXPECT_EQ(comm.capabilities().backend, "hybrid");
      for (const Device device : {Device{}, Device{DeviceType::kCuda, 0}}) {
        int64_t x = comm.rank() + 1;
        const comm::Buffer b{&x, 1, DType::kInt64, device};
        comm.all_reduce(b, b, comm::ReduceOp::kSum).wait();
        EXPECT_EQ(x, 3);
      }
      comm.shutdown();
    });
  }
  EXPECT_EQ(stand_in::take_faults(), std::vector<std::string>{});
  EXPECT_EQ(stand_in::alive(), 0);
}

TEST(NcclConnect, NcclAloneRefusesMemoryOfTheCpu) {
  run_ranks(world_of("nccl", "gloo"), [](comm::Comm& comm) {
    int64_t x = comm.rank() + 1;
    const comm::Buffer b{&x, 1, DType::kInt64};
    try {
      comm.all_reduce(b, b, comm::ReduceOp::kSum).wait();
      ADD_FAILURE() << "took memory of the CPU";
    } catch (const ArgumentError& e) {
      EXPECT_NE(std::string(e.what()).find("hybrid://"), std::string::npos) << e.what();
    }
    comm.barrier().wait();
  });
}

using Options = std::map<std::string, std::string>;

// Does the one that calls itself `rank` of so many have this device?
bool takes(int rank, int size, const Options& options, int device) {
  const auto store = comm::make_memory_store();
  const auto connect = [&](int r) {
    comm::Endpoint e;
    e.scheme = "nccl";
    e.rank = r;
    e.size = size;
    e.options = options;
    return comm::nccl::connect(e, store);
  };
  std::vector<std::unique_ptr<comm::Comm>> world(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] { world[static_cast<size_t>(r)] = connect(r); });
  for (auto& t : threads) t.join();
  const auto group = world[static_cast<size_t>(rank)]->group(std::vector<int>{rank}, "alone");
  float x = 1;
  const comm::Buffer b{&x, 1, DType::kFloat32, {DeviceType::kCuda, device}};
  try {
    group->all_reduce(b, b, comm::ReduceOp::kSum).wait();
    return true;
  } catch (const ArgumentError&) {
    return false;
  }
}

// Of ranks that a launcher started each has the device of its place on the machine, in turn. A URL
// that says all itself does not need the launcher's variables.
TEST(NcclConnect, TheDeviceOfALaunchedRankIsThatOfItsPlace) {
  struct Case {
    Options variables;
    int rank;
    int size;
    int device;
  };
  const Options second = {
      {"DTENSOR_RANK", "1"}, {"DTENSOR_WORLD_SIZE", "2"}, {"DTENSOR_LOCAL_RANK", "1"}};
  stand_in::set_devices(2);
  for (const Case& c : {Case{second, 1, 2, 1}, Case{second, 0, 2, 0}, Case{second, 0, 1, 0},
                        Case{{{"DTENSOR_RANK", "1"}}, 1, 2, 0}, Case{{}, 1, 2, 0}}) {
    for (const auto& [name, value] : c.variables) setenv(name.c_str(), value.c_str(), 1);
    EXPECT_TRUE(takes(c.rank, c.size, {}, c.device));
    EXPECT_FALSE(takes(c.rank, c.size, {}, 1 - c.device));
    EXPECT_TRUE(takes(c.rank, c.size, {{"device", "0"}}, 0));
    for (const auto& [name, value] : c.variables) unsetenv(name.c_str());
  }
  stand_in::set_devices(1);
}

TEST(NcclConnect, ADeviceThatIsNotThereIsRefused) {
  comm::Endpoint e;
  e.scheme = "nccl";
  e.options["device"] = "7";
  EXPECT_THROW(comm::nccl::connect(e), ArgumentError);
  e.options["device"] = "0";
  e.options["cpu"] = "pigeons";
  EXPECT_THROW(comm::nccl::connect(e), ArgumentError);
}

}  // namespace
}  // namespace dtensor::testing
