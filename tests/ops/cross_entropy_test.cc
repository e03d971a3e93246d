#include "dtensor/ops/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

// Sums of 2 over one token and of 90 over nine are a mean of 9.2, not of (2 + 10) / 2.
struct Uneven {
  Tensor logits;   // [2, 10, 2]: rows of a class's logit 0 and another's
  Tensor targets;  // class 0; row 0 has one valid one, row 1 nine
};
Uneven uneven() {
  const Tensor x = Tensor::zeros({2, 10, 2}, DType::kFloat64);
  const Tensor y = Tensor::full({2, 10}, static_cast<double>(kIgnored), DType::kInt64);
  const auto put = [&](int64_t row, int64_t at, double loss) {
    x.data<double>()[(row * 10 + at) * 2 + 1] = std::log(std::expm1(loss));
    y.data<int64_t>()[row * 10 + at] = 0;
  };
  put(0, 4, 2);
  for (int64_t t = 0; t < 9; ++t) put(1, t, 10);
  return {x, y};
}

TEST(CrossEntropy, OfUnequalCountsIsTheMeanOverAllAsTwoRanks) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const Uneven u = uneven();
    const DTensor x = leaf(u.logits, mesh, {Shard(0)});
    const DTensor y = distribute(u.targets, mesh, {Shard(0)});
    DTensor loss = cross_entropy(x, y, {.ignore_index = kIgnored});
    EXPECT_NEAR(loss.item(), 9.2, 1e-12);
    loss.backward();
    DTensor alone(u.logits);
    alone.set_requires_grad(true);
    DTensor reference = cross_entropy(alone, DTensor(u.targets), {.ignore_index = kIgnored});
    reference.backward();
    EXPECT_EQ(full(x.grad()).to_vector<double>(), alone.grad().local_tensor().to_vector<double>());
  });
}

TEST(CrossEntropy, OfUnequalCountsIsTheMeanOverAllAsTwoMicrobatches) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const Uneven u = uneven();
    // Each microbatch is cut by tokens over the ranks, who have other counts again.
    DTensor w = leaf(Tensor::full({1}, 1.0, DType::kFloat64), mesh, {Replicate()});
    double total = 0;
    for (const int64_t row : {0, 1}) {
      const DTensor x = distribute(u.logits.narrow(0, row, 1), mesh, {Shard(1)});
      const DTensor y = distribute(u.targets.narrow(0, row, 1), mesh, {Shard(1)});
      DTensor loss = cross_entropy(mul(x, w), y, {.ignore_index = kIgnored, .count = 10});
      total += loss.item();
      loss.backward({.defer = row == 0});
    }
    EXPECT_NEAR(total, 9.2, 1e-12);
    // d/dw of log(1 + e^(w z)) at w = 1 is z (1 - e^-loss), e^z + 1 = e^loss.
    const auto slope = [](double loss) { return std::log(std::expm1(loss)) * -std::expm1(-loss); };
    EXPECT_NEAR(full(w.grad()).to_vector<double>()[0], (slope(2) + 9 * slope(10)) / 10, 1e-6);
  });
}

// Of logarithms that are there: sums by a plain loop, over a cut batch and over cut classes.
TEST(NllLoss, IsTheMeanOverTheTargetsThatCount) {
  const std::vector<float> x = logits().to_vector<float>();
  const double want = -(x[6] + x[7 + 3] + x[21 + 1]);
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"m", 3}});
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      const DTensor scores = leaf(logits(), mesh, {p});
      const Placement rows = p == Shard(0) ? p : Replicate();
      const DTensor classes = distribute(targets(), mesh, {rows});
      DTensor loss = nll_loss(scores, classes, {.ignore_index = kIgnored});
      EXPECT_NEAR(full(loss).to_vector<float>()[0], want / 3, 1e-6);
      loss.backward();
      const std::vector<float> g = whole(scores.grad());
      for (size_t i = 0; i < g.size(); ++i) {
        const bool hit = i == 6 || i == 7 + 3 || i == 21 + 1;
        EXPECT_FLOAT_EQ(g[i], hit ? -1.0F / 3 : 0.0F) << i;
      }
      const NllLossOptions each{.ignore_index = kIgnored, .reduction = LossReduction::kNone};
      EXPECT_EQ(whole(nll_loss(scores, classes, each)),
                (std::vector<float>{-x[6], -x[10], 0, -x[22]}));
    }
  });
  run_ranks(2, [](comm::Comm& comm) {
    // No valid target: as cross_entropy.
    const DeviceMesh mesh(comm, {{"dp", 2}});
    const DTensor x = distribute(counted({2, 3}), mesh, {Shard(0)});
    const DTensor y = distribute(ids({kIgnored, kIgnored}, {2}), mesh, {Shard(0)});
    const DTensor loss = nll_loss(x, y, {.ignore_index = kIgnored});
    EXPECT_EQ(loss.spec().placement(0), Partial());
    EXPECT_TRUE(std::isnan(loss.item()));
    // A rank outside the mesh has a handle.
    const DeviceMesh first(comm, {{"dp", 1}}, {0});
    const DTensor there = distribute(counted({2, 3}), first, {Shard(0)});
    const DTensor classes = distribute(ids({1, kIgnored}, {2}), first, {Shard(0)});
    const DTensor one = nll_loss(there, classes, {.ignore_index = kIgnored});
    EXPECT_EQ(one.has_local(), comm.rank() == 0);
    if (one.has_local()) {
      EXPECT_EQ(one.item(), -1);
    }
  });
  EXPECT_THROW(nll_loss(DTensor(logits()), DTensor(targets())), ArgumentError);  // -100
  EXPECT_THROW(nll_loss(DTensor(logits()), DTensor(counted({4}))), ArgumentError);
  EXPECT_THROW(nll_loss(DTensor(logits()), DTensor(ids({1, 2, 3, 4}, {4, 1}))), ArgumentError);
}

}  // namespace
}  // namespace dtensor
