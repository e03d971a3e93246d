#include "dtensor/ops/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

constexpr int64_t kIgnored = -100;

Tensor logits() {
  return floats(
      {0, 1, 2, 0, 0, 0, 3, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 2, 2, 0, 0, 0, 0, 1}, {4, 7});
}
Tensor targets() { return ids({6, 3, kIgnored, 1}, {4}); }

void expect_gradient(const DTensor& x) {
  const std::vector<float> g = whole(x.grad());
  const double want[] = {0.00974862, 0.02649950, 0.07203310, 0.00974862,
                         0.00974862, 0.00974862, -0.13752707};
  for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(g[i], want[i], 1e-7);
  for (size_t i = 14; i < 21; ++i) EXPECT_EQ(g[i], 0.0F) << "the ignored row";
}

// pytorch#190746, pytorch#162692
TEST(CrossEntropy, OverShardedClassesAsksAndIsRight) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const DTensor x = leaf(logits(), mesh, {Shard(1)});
    const DTensor y = replicate(DTensor(targets()), mesh);
    EXPECT_THAT(placement_error([&] { cross_entropy(x, y, {.ignore_index = kIgnored}); }),
                HasSubstr("{.sharded_classes = true}"));
    DTensor loss = cross_entropy(x, y, {.ignore_index = kIgnored, .sharded_classes = true});
    EXPECT_EQ(loss.spec().placement(0), Partial());
    const auto& entries = Context::current().slot<Ledger>().entries();
    ASSERT_EQ(entries.size(), 2U) << "maxima and sums; the count is the same on all ranks";
    for (const LedgerEntry& e : entries) {
      EXPECT_EQ(e.op, "cross_entropy");
      EXPECT_EQ(e.kind, StepKind::kAllReduce);
      EXPECT_EQ(e.payload_bytes, 2 * 2 * 4 * 4) << "2(n-1) times four floats";
    }
    EXPECT_NEAR(loss.item(), 0.77169436, 1e-6);
    loss.backward();
    expect_gradient(x);
  });
}

TEST(CrossEntropy, OnAGridCountsValidTargetsOnce) {
  run_ranks(6, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 3}});
    const DTensor x = leaf(logits(), mesh, {Shard(0), Shard(1)});
    const DTensor y = distribute(targets(), mesh, {Shard(0)});
    DTensor loss = cross_entropy(x, y, {.ignore_index = kIgnored, .sharded_classes = true});
    EXPECT_EQ(loss.spec().placement(0), Partial());
    EXPECT_EQ(loss.spec().placement(1), Partial());
    EXPECT_NEAR(loss.item(), 0.77169436, 1e-6);
    loss.backward();
    expect_gradient(x);
    const DTensor smooth = cross_entropy(
        x, y, {.ignore_index = kIgnored, .sharded_classes = true, .label_smoothing = 0.1});
    EXPECT_NEAR(smooth.item(), 0.93836102, 1e-6);
    const DTensor given =
        cross_entropy(x, y, {.ignore_index = kIgnored, .count = 3, .sharded_classes = true});
    EXPECT_NEAR(given.item(), 0.77169436, 1e-6);
  });
}

TEST(CrossEntropy, AsASumAndOfEveryTargetByItself) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 3}});
    const DTensor x = leaf(logits(), mesh, {Shard(1)});
    const DTensor y = replicate(DTensor(targets()), mesh);
    CrossEntropyOptions options{.ignore_index = kIgnored, .sharded_classes = true};
    options.reduction = LossReduction::kSum;
    EXPECT_NEAR(cross_entropy(x, y, options).item(), 3 * 0.77169436, 3e-6);
    options.reduction = LossReduction::kNone;
    const DTensor each = cross_entropy(x, y, options);
    EXPECT_EQ(each.shape(), Shape{4});
    EXPECT_EQ(each.spec().placement(0), Partial());
    // log(sum exp) less the target's logit.
    const double want[] = {std::log(4 + std::exp(1) + std::exp(2) + std::exp(3)) - 3,
                           std::log(5 + std::exp(1) + std::exp(2)) - 2, 0,
                           std::log(4 + std::exp(1) + 2 * std::exp(2)) - 2};
    const std::vector<float> got = whole(each);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
    // The gradient of the mean.
    sum(mul(each, 1.0 / 3)).backward();
    expect_gradient(x);
  });
}

TEST(CrossEntropy, OfABatchThatIsCutIsPartialWithoutAMessage) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 3}});
    const DTensor x = distribute(logits(), mesh, {Shard(0)});
    const DTensor y = distribute(ids({6, 3, 4, 1}, {4}), mesh, {Shard(0)});
    const DTensor loss = cross_entropy(x, y);
    EXPECT_EQ(moved_bytes(), 0);
    const DTensor alone = cross_entropy(DTensor(logits()), DTensor(ids({6, 3, 4, 1}, {4})));
    EXPECT_NEAR(loss.item(), alone.item(), 1e-6);
  });
}

// torchtitan#1842's kind: no valid target on any rank.
TEST(CrossEntropy, OfNoValidTargetIsNaNOnEveryRank) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({2, 3}), mesh, {Shard(0)});
    const DTensor y = distribute(ids({kIgnored, kIgnored}, {2}), mesh, {Shard(0)});
    EXPECT_TRUE(std::isnan(cross_entropy(x, y, {.ignore_index = kIgnored}).item()));
  });
}

// A rank that threw alone would leave the other waiting in the all-reduce of the count.
TEST(CrossEntropy, RefusesATargetOfOneRankOnAll) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({2, 3}), mesh, {Shard(0)});
    const DTensor y = distribute(ids({kIgnored, 99}, {2}), mesh, {Shard(0)});
    std::string e;
    try {
      cross_entropy(x, y, {.ignore_index = kIgnored});
    } catch (const ArgumentError& error) {
      e = error.what();
    }
    EXPECT_THAT(e, HasSubstr(comm.rank() == 1 ? "cross_entropy has 99 at [0]"
                                              : "a target on another rank that is not in [0, 3)"));
  });
}

TEST(CrossEntropy, RefusesATargetThatIsNoClass) {
  const DTensor x(counted({2, 3}));
  EXPECT_THROW(cross_entropy(x, DTensor(ids({0, 3}, {2}))), ArgumentError);
  EXPECT_THROW(cross_entropy(x, DTensor(counted({2}))), ArgumentError);
  EXPECT_THROW(cross_entropy(x, DTensor(ids({0, 1}, {2})), {.label_smoothing = 1.5}),
               ArgumentError);
}

}  // namespace
}  // namespace dtensor
