// Replicas that are not equal are found by the records alone, and named with their ranks.

#include "dtensor/checkpoint/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "dtensor/checkpoint/attempt.h"
#include "dtensor/checkpoint/checkpoint.h"
#include "dtensor/checkpoint/contents.h"
#include "dtensor/comm/comm.h"
#include "dtensor/mesh/device_mesh.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tests/checkpoint/bag.h"
#include "dtensor/tests/checkpoint/silent_rank.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor::checkpoint {
namespace {

using testing::as_silent_rank;
using testing::Bag;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::run_ranks;
using testing::TemporaryDirectory;

// On a mesh of (2,2): "large" [1100,16] and "small" [5,4], [R,S(0)]; "bias" [3], [R,R]. Ranks 0 and
// 2 hold one half of the rows, ranks 1 and 3 the other. No rank speaks with another one.
void save_as(int rank, const std::string& run, Replicas replicas,
             const std::vector<std::pair<int, std::string>>& wrong) {
  as_silent_rank(rank, 4, testing::kSilentRun, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    Bag bag;
    const auto add = [&](const std::string& name, const Shape& shape,
                         const std::vector<Placement>& placements) {
      const Layout layout(mesh.layout(), shape, placements);
      Tensor local = Tensor::full(layout.box_of(rank).size, 1);
      for (const auto& [bad_rank, bad_name] : wrong) {
        if (bad_rank == rank && bad_name == name) {
          local.data<float>()[local.numel() - 1] = 2 + static_cast<float>(rank);
        }
      }
      bag.add(name, DTensor(local, layout, mesh));
    };
    add("large", {1100, 16}, {Replicate(), Shard(0)});
    add("small", {5, 4}, {Replicate(), Shard(0)});
    add("bias", {3}, {Replicate(), Replicate()});
    add("one", {1, 2}, {Replicate(), Shard(0)});  // ranks 1 and 3 hold none of it
    add("cut", {4, 4}, {Shard(0), Shard(1)});     // nobody else holds that
    save(run, 1, {.model = bag}, {.replicas = replicas});
  });
}

std::vector<std::string> differing(Replicas replicas,
                                   const std::vector<std::pair<int, std::string>>& wrong) {
  const TemporaryDirectory run;
  for (int rank = 0; rank < 4; ++rank) save_as(rank, run.path(), replicas, wrong);
  const auto attempts = list_attempts(run.path());
  const Examined examined = examine(attempts.at(0));
  EXPECT_TRUE(examined.is_complete()) << examined.reason();
  std::vector<std::string> texts;
  for (const Problem& p : examined.contents.differing) {
    EXPECT_EQ(p.what, "replicas");
    EXPECT_THAT(p.text, HasSubstr("\"" + p.tensor + "\""));
    texts.push_back(p.text);
  }
  return texts;
}

TEST(ReplicaCheck, EqualOnesAreNotNamed) {
  EXPECT_THAT(differing(Replicas::kCompared, {}), ElementsAre());
}

TEST(ReplicaCheck, WhatDiffersIsNamedWithItsPartAndRanks) {
  const std::string two = " had 2 different values on its holders: ";
  EXPECT_THAT(differing(Replicas::kCompared, {{2, "large"}, {3, "small"}, {0, "cut"}, {2, "one"}}),
              ElementsAre("tensor \"large\" [1100,16]: [0:550,0:16]" + two + "rank 0; rank 2",
                          "tensor \"one\" [1,2]: [0:1,0:2]" + two + "rank 0; rank 2",
                          "tensor \"small\" [5,4]: [3:5,0:4]" + two + "rank 1; rank 3"));
  EXPECT_THAT(differing(Replicas::kCompared, {{1, "bias"}, {3, "bias"}}),
              ElementsAre("tensor \"bias\" [3]: [0:3] had 3 different values on its holders: ranks "
                          "0, 2; rank 1; rank 3"));
}

TEST(ReplicaCheck, UnaskedNothingIsCompared) {
  EXPECT_THAT(differing(Replicas::kTrusted, {{2, "large"}, {3, "bias"}}), ElementsAre());
}

TEST(ReplicaCheck, LoadTellsEveryRankAndLoads) {
  const TemporaryDirectory run;
  for (int rank = 0; rank < 4; ++rank) {
    save_as(rank, run.path(), Replicas::kCompared, {{3, "bias"}});
  }
  run_ranks(2, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    Bag bag;
    bag.add("large", distribute(Tensor::zeros({1100, 16}), mesh, {Shard(1)}));
    LoadReport report;
    EXPECT_EQ(
        load(run.path(), {.model = bag}, {.unexpected = Unexpected::kIgnore, .report = &report}),
        1);
    ASSERT_EQ(report.differing.size(), 1U);
    EXPECT_THAT(report.differing[0], HasSubstr("\"bias\""));
  });
}

}  // namespace
}  // namespace dtensor::checkpoint
