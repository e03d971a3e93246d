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

// Of ranks that a launcher started each has the device of its place on the machine, in turn.
TEST(NcclConnect, TheDeviceOfALaunchedRankIsThatOfItsPlace) {
  const std::map<std::string, std::string> launched = {
      {"DTENSOR_RANK", "7"}, {"DTENSOR_WORLD_SIZE", "8"}, {"DTENSOR_LOCAL_RANK", "3"}};
  for (const auto& [name, value] : launched) setenv(name.c_str(), value.c_str(), 1);
  stand_in::set_devices(2);
  const auto takes = [](const std::map<std::string, std::string>& options, int device) {
    comm::Endpoint e;
    e.scheme = "nccl";
    e.options = options;
    const auto comm = comm::nccl::connect(e, comm::make_memory_store());
    float x = 1;
    const comm::Buffer b{&x, 1, DType::kFloat32, {DeviceType::kCuda, device}};
    try {
      comm->all_reduce(b, b, comm::ReduceOp::kSum).wait();
      return true;
    } catch (const ArgumentError&) {
      return false;
    }
  };
  EXPECT_TRUE(takes({}, 1));
  EXPECT_FALSE(takes({}, 0));
  EXPECT_TRUE(takes({{"device", "0"}}, 0));
  for (const auto& [name, value] : launched) unsetenv(name.c_str());
  EXPECT_TRUE(takes({}, 0));
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
