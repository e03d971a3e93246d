// One rank of the contract of a Transport over UCX between processes
// (dtensor/tests/comm/process_worlds.h).

#include "dtensor/comm/file_store.h"
#include "dtensor/comm/ucx/ucx_transport.h"
#include "dtensor/tests/comm/process_worlds.h"
#include "dtensor/tests/comm/transport_contract.h"

namespace dtensor::testing {
namespace {

TransportWorld processes() {
  struct Now {
    ProcessWorld world;
    std::shared_ptr<comm::Store> store;
  };
  const auto now = std::make_shared<Now>();
  const auto make = [now](int size) {
    now->world = next_process_world(size);
    std::vector<std::shared_ptr<comm::Transport>> here;
    if (!now->world.has_part()) return here;
    now->store = comm::make_file_store(now->world.directory);
    here.push_back(comm::ucx::make_ucx_transport(
        now->store, {.rank = now->world.rank,
                     .size = size,
                     .token = "token",
                     .deadline = Deadline::after(std::chrono::seconds(120))}));
    return here;
  };
  return {"processes", make, GonePeer::kMayBeTold,
          [now] { now->world.leave_together(*now->store); }};
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportContract, ::testing::Values(processes()), transport_name);

}  // namespace
}  // namespace dtensor::testing
