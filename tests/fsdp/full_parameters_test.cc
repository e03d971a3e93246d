#include "dtensor/fsdp/full_parameters.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/fsdp/fully_shard.h"
#include "dtensor/tests/support/models.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/values.h"

namespace dtensor::fsdp {
namespace {

TEST(FullParameters, AreWholeOnEveryRankUnderThePlainNames) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    testing::run_ranks(ranks, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"dp", ranks}});
      testing::Mlp plain({});
      testing::Mlp net({});
      nn::init_normal(plain, 5, 1.0);
      nn::init_normal(net, 5, 1.0);
      fully_shard(net, mesh["dp"]);
      int runs = 0;
      with_full_parameters(net, Access::kRead, [&](const TensorMap& whole) {
        ++runs;
        ASSERT_EQ(whole.size(), 4U);
        for (const auto& [name, p] : plain.named_parameters()) {
          EXPECT_EQ(whole.at(name).to_vector<float>(), testing::piece(p.value())) << name;
          whole.at(name).data<float>()[0] = 100.0F;  // is lost
        }
      });
      EXPECT_EQ(runs, 1);
      EXPECT_EQ(testing::parameter_values(net), testing::parameter_values(plain));
    });
  }
}

TEST(FullParameters, WhatIsWrittenComesBackCut) {
  for (const bool tp : {false, true}) {
    testing::run_ranks(4, [&](comm::Comm& world) {
      const DeviceMesh mesh(world, {{"rep", 2}, {"dp", 2}});
      testing::Mlp net({});
      nn::init_normal(net, 5, 1.0);
      fully_shard(net, tp ? mesh.slice({"rep", "dp"}) : mesh["dp"]);
      with_full_parameters(net, Access::kWrite, [](const TensorMap& whole) {
        for (const auto& [name, tensor] : whole) {
          for (int64_t i = 0; i < tensor.numel(); ++i) {
            tensor.data<float>()[i] = static_cast<float>(i);
          }
        }
      });
      for (const auto& [name, values] : testing::parameter_values(net)) {
        for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
      }
      EXPECT_THROW(with_full_parameters(net, Access::kWrite,
                                        [](const TensorMap& whole) {
                                          whole.begin()->second.data<float>()[0] = -1.0F;
                                          throw ArgumentError("an edit that fails");
                                        }),
                   ArgumentError);
      for (const auto& [name, values] : testing::parameter_values(net)) EXPECT_EQ(values[0], 0.0F);
    });
  }
}

}  // namespace
}  // namespace dtensor::fsdp
