#include "dtensor/ops/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dtensor/ops/matmul.h"
#include "dtensor/tensor/policy.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/error_of.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Explain, TellsTheRowOfEveryMeshDim) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const DTensor x = distribute(counted({4, 6}), mesh, {Shard(0), Shard(1)});
    const DTensor w = distribute(counted({6, 3}), mesh, {Replicate(), Shard(0)});
    const std::string want =
        "matmul mk,kn->mn: a f32[4,6], b f32[6,3]\n"
        "  dp: S(0), R -> S(0)\n"
        "  tp: S(1), S(0) -> P(sum)\n";
    EXPECT_EQ(ops::explain([&] { matmul(x, w); }), want);
    EXPECT_EQ(ops::explain("matmul", {x, w}), want);
  });
}

TEST(Explain, TellsMovesAndEveryOpOfACall) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(counted({4, 2}), mesh, {Shard(0)});
    const DTensor r = distribute(counted({4, 2}), mesh, {Replicate()});
    EXPECT_EQ(ops::explain([&] { sum(add(x, r)); }),
              "add ab,ab->ab: a f32[4,2], b f32[4,2]\n"
              "  tp: S(0), R => S(0) -> S(0)\n"
              "sum ab->: a f32[4,2]\n"
              "  tp: S(0) -> P(sum)\n");
    EXPECT_EQ(ops::explain([&] { neg(DTensor(counted({2}))); }),
              "neg a->a: a f32[2]\n  on no mesh\n");
  });
}

TEST(Explain, TellsWhyNoneFitsAndWhatWould) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const DTensor x = distribute(counted({4, 4}), mesh, {Shard(1)});
    const DTensor w = distribute(counted({4, 4}), mesh, {Shard(1)});
    const std::string text = ops::explain("matmul", {x, w});
    EXPECT_THAT(text, AllOf(StartsWith("matmul: a f32[4,4] is S(1)"),
                            HasSubstr("it would cut both"), HasSubstr("Use redistribute(")));
    EXPECT_EQ(text, placement_error([&] { matmul(x, w); }) + "\n");
    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(ops::explain("matmul", {x, w}), HasSubstr("=>"));
    EXPECT_THAT(error_of<ArgumentError>([&] { ops::explain("matmul", {x}); }),
                HasSubstr("no op \"matmul\" of 1 operands; there are"));
  });
}

}  // namespace
}  // namespace dtensor
