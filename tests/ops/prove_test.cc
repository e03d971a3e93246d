// Every op of the registry is proved on even, uneven and empty parts, and on meshes of two dims
// with a tensor dim cut twice, in both orders. On a mesh of one dim every combination of placements
// is tried; on two dims so for up to two operands, else a sample.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/ops/registry.h"
#include "dtensor/tests/ops/prover.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/support/sanitized.h"

namespace dtensor {
namespace {

using ::testing::IsEmpty;
using testing::kSanitized;
using testing::prove;
using testing::ProverOptions;
using testing::ProverReport;
using testing::run_ranks;

struct World {
  std::string name;
  std::vector<MeshDim> dims;
};

const std::vector<World>& worlds() {
  static const std::vector<World> kWorlds = {{"two", {{"a", 2}}},
                                             {"three", {{"a", 3}}},
                                             {"four", {{"a", 4}}},
                                             {"grid", {{"a", 2}, {"b", 2}}},
                                             {"uneven_grid", {{"a", 2}, {"b", 3}}}};
  return kWorlds;
}

// Under a sanitizer 5% of a sample, and samples of what is exhausted otherwise.
ProverOptions options_of(const World& world, const ops::OpEntry& entry) {
  constexpr int kSample = 3000;
  if (world.dims.size() == 1) return {.sample = kSanitized ? 50 : 0};
  if (kSanitized) return {.sample = kSample / 20};
  return {.sample = entry.operands.size() <= 2 ? 0 : kSample};
}

class Prove : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};

TEST_P(Prove, EveryRowIsRightAndNoneIsMissing) {
  const World& world = worlds()[std::get<0>(GetParam())];
  const ops::OpEntry& entry = ops::all_ops()[std::get<1>(GetParam())];
  int size = 1;
  for (const MeshDim& dim : world.dims) size *= dim.size;
  run_ranks(size, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, world.dims);
    const ProverReport report = prove(entry, mesh, options_of(world, entry));
    EXPECT_THAT(report.wrong, IsEmpty()) << entry.name << " on rank " << comm.rank();
    EXPECT_THAT(report.missing, IsEmpty()) << entry.name;
    EXPECT_GT(report.taken, 0) << entry.name;
    if (comm.rank() == 0) {
      ::testing::Test::RecordProperty("taken", report.taken);
      ::testing::Test::RecordProperty("refused", report.refused);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, Prove,
                         ::testing::Combine(::testing::Range<size_t>(0, worlds().size()),
                                            ::testing::Range<size_t>(0, ops::all_ops().size())),
                         [](const auto& info) {
                           const ops::OpEntry& entry = ops::all_ops()[std::get<1>(info.param)];
                           std::string name = worlds()[std::get<0>(info.param)].name + "_" +
                                              entry.name + "_" + entry.variant + "_" +
                                              std::to_string(std::get<1>(info.param));
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace dtensor
