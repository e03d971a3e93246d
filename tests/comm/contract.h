// The contract of a Comm, as tests over any backend: the target :contract holds the tests, and
// each backend's test instantiates CommContract for its worlds:
//   INSTANTIATE_TEST_SUITE_P(Local, CommContract, testing::ValuesIn(worlds("local", make)),
//                            world_name);

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/comm.h"
#include "dtensor/tests/comm/values.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::testing {

// Gives the Comms of a world, in rank order, of those ranks that are in this process.
using MakeWorld = std::function<std::vector<std::unique_ptr<comm::Comm>>(int size)>;

struct CommWorld {
  std::string backend;
  int size = 1;
  MakeWorld make;
};

inline std::vector<CommWorld> worlds(const std::string& backend, const MakeWorld& make) {
  std::vector<CommWorld> all;
  for (const int size : {1, 2, 3, 4, 7}) all.push_back({backend, size, make});
  return all;
}

inline std::string world_name(const ::testing::TestParamInfo<CommWorld>& info) {
  return info.param.backend + "_" + std::to_string(info.param.size);
}

class CommContract : public ::testing::TestWithParam<CommWorld> {
 protected:
  int size() const { return GetParam().size; }
  void run(const RankFunction& f) const { run_ranks(GetParam().make(size()), f); }
  // The same where ranks are expected to fail: their CommErrors, of the ranks that are here.
  std::vector<std::optional<comm::CommError::Fields>> failures(const RankFunction& f) const {
    auto world = GetParam().make(size());
    const int first = world.empty() ? 0 : world[0]->rank();
    std::vector<std::optional<comm::CommError::Fields>> here(world.size());
    run_ranks(std::move(world), [&](comm::Comm& comm) {
      try {
        f(comm);
      } catch (const comm::CommError& e) {
        here[static_cast<size_t>(comm.rank() - first)] = e.fields();
      }
    });
    return here;
  }
};

}  // namespace dtensor::testing
