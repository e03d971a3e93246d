#include "dtensor/tensor/recompute.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/base/error.h"
#include "dtensor/base/philox.h"
#include "dtensor/ops/dropout.h"
#include "dtensor/ops/elementwise.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/policy.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// Computed again in backward, with the random numbers of the first time and none taken from the
// generator; freed in between.
TEST(Recomputed, DrawsTheSameNumbersAgain) {
  DTensor x(counted({64}));
  x.set_requires_grad(true);
  int runs = 0;
  const Region region = [&runs](std::span<const DTensor> in) {
    ++runs;
    return dropout(mul(in[0], in[0]), 0.5);
  };
  auto& generator = Context::current().slot<Generator>();
  generator = {5, 30};
  const std::vector<DTensor> inputs = {x};
  sum(region(inputs)).backward();
  const std::vector<float> want = piece(x.grad());
  x.set_grad({});
  generator = {5, 30};
  DTensor loss = sum(recomputed(region, {x}));
  EXPECT_EQ(runs, 2);
  static_cast<void>(dropout(x, 0.5));
  loss.backward();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(piece(x.grad()), want);
  EXPECT_EQ(generator, (Generator{5, 32}));
}

TEST(Recomputed, OnAMeshGivesTheGradientsOfTheWhole) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    // w is R and x cut: the gradients leave the region P(sum), and each is resolved once.
    DTensor w = leaf(counted({3}), mesh, {Replicate()});
    DTensor captured = leaf(floats({2}, {1}), mesh, {Replicate()});
    const DTensor x = distribute(counted({5, 3}), mesh, {Shard(0)});
    const auto region = [&](std::span<const DTensor> in) { return mul(mul(in[0], x), captured); };
    sum(region(std::vector<DTensor>{w})).backward();
    const std::vector<float> want = whole(w.grad());
    const std::vector<float> captured_want = whole(captured.grad());
    w.set_grad({});
    captured.set_grad({});
    DTensor loss = sum(recomputed(region, {mul(w, 1.0)}));
    Context::current().slot<Ledger>().clear();
    loss.backward();
    for (const LedgerEntry& e : Context::current().slot<Ledger>().entries()) {
      EXPECT_EQ(e.kind, StepKind::kAllReduce);
      EXPECT_EQ(e.op, "leaf");
    }
    EXPECT_EQ(Context::current().slot<Ledger>().entries().size(), 2U);
    EXPECT_EQ(whole(w.grad()), want);
    EXPECT_EQ(whole(captured.grad()), captured_want);
  });
}

// w's gradient from outside is under way to R while the region's own comes.
TEST(Recomputed, CapturedLeafIsAlsoUsedAfterTheRegion) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    DTensor w = leaf(floats({2}, {1}), mesh, {Replicate()});
    const DTensor x = leaf(counted({5}), mesh, {Shard(0)});
    for (const float before : {0.0F, 7.0F}) {
      w.set_grad(before == 0.0F ? DTensor()
                                : distribute(floats({before}, {1}), mesh, {Replicate()}));
      const DTensor y = recomputed([&](std::span<const DTensor> in) { return mul(in[0], w); }, {x});
      DTensor loss = sum(mul(y, w));  // the sum of x w^2: 2 w (0 + 1 + 2 + 3 + 4)
      loss.backward();
      EXPECT_EQ(whole(w.grad()), std::vector<float>{40.0F + before});
    }
  });
}

// A pass that fails leaves what earlier ones gave, and what it had under way.
TEST(Recomputed, AnErrorLeavesTheGradientsThatHaveCome) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    const DTensor w = leaf(floats({2}, {1}), mesh, {Replicate()});
    const DTensor x = leaf(counted({4}), mesh, {Shard(0)});
    sum(mul(x, w)).backward();
    const DTensor y = mul(x, 3.0);
    add_grad_hook(y, [](const DTensor&) -> DTensor { throw Error("a hook"); });
    DTensor loss = sum(mul(y, w));  // w's gradient is under way when the hook runs, and arrives
    EXPECT_THROW(loss.backward(), Error);
    EXPECT_EQ(whole(w.grad()), std::vector<float>{6.0F + 18.0F});
  });
}

// The scope of forward is gone in backward, where the region runs again.
TEST(Recomputed, KeepsThePolicy) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"d", 2}});
    DTensor a = leaf(counted({4, 4}), mesh, {Shard(0)});
    const DTensor b = distribute(counted({4, 4}), mesh, {Shard(1)});
    DTensor loss;
    {
      const PolicyScope policy(RedistributePolicy::kAuto);
      loss = sum(recomputed([&](std::span<const DTensor> in) { return mul(in[0], b); }, {a}));
    }
    loss.backward();
    EXPECT_EQ(whole(a.grad()), whole(b));
  });
}

// h = 2 w: what it gives to a region and to the rest goes to it once, and from it to w.
TEST(Recomputed, CapturesWhatAnOpMade) {
  DTensor w(floats({3, 5}, {2}));
  DTensor x(floats({7, 11}, {2}));
  w.set_requires_grad(true);
  x.set_requires_grad(true);
  const DTensor h = mul(w, 2.0);
  int seen = 0;
  add_grad_hook(h, [&](const DTensor& g) {
    ++seen;
    return g;
  });
  const DTensor y = recomputed([&](std::span<const DTensor> in) { return mul(in[0], h); }, {x});
  DTensor loss = sum(add(y, h));  // of 2 w x + 2 w
  loss.backward({.retain_graph = true});
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(piece(w.grad()), (std::vector<float>{16, 24}));
  EXPECT_EQ(piece(x.grad()), (std::vector<float>{6, 10}));
  loss.backward();
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(piece(w.grad()), (std::vector<float>{32, 48}));
  EXPECT_EQ(piece(x.grad()), (std::vector<float>{12, 20}));
  EXPECT_THROW(loss.backward(), Error);
}

// Nothing but the regions leads to h. Its parent p is also used by what is run before them, and
// waits for h; w is a leaf of everything.
TEST(Recomputed, TwoRegionsCaptureOneTensor) {
  DTensor w(floats({3}, {1}));
  DTensor x(floats({7}, {1}));
  w.set_requires_grad(true);
  x.set_requires_grad(true);
  const DTensor p = mul(w, w);
  const DTensor h = mul(p, 2.0);
  const Region times_h = [&](std::span<const DTensor> in) { return mul(in[0], h); };
  const DTensor y = recomputed(times_h, {recomputed(times_h, {x})});
  DTensor loss = sum(add(y, mul(p, w)));  // x (2 w²)² + w³
  for (int i = 1; i <= 2; ++i) {
    loss.backward({.retain_graph = i == 1});
    EXPECT_EQ(piece(w.grad()), std::vector<float>{static_cast<float>(i * (16 * 7 * 27 + 27))});
    EXPECT_EQ(piece(x.grad()), std::vector<float>{static_cast<float>(i * 4 * 81)});
  }
}

TEST(Recomputed, ARegionInARegionCapturesOfBoth) {
  DTensor w(floats({3}, {1}));
  DTensor x(floats({7}, {1}));
  w.set_requires_grad(true);
  x.set_requires_grad(true);
  const DTensor h = mul(w, 2.0);
  const auto outer = [&](std::span<const DTensor> in) {
    const DTensor z = mul(in[0], h);
    const auto inner = [z, h](std::span<const DTensor> i) { return mul(mul(i[0], z), h); };
    return recomputed(inner, {in[0]});
  };
  sum(recomputed(outer, {x})).backward();  // x² (2 w)²
  EXPECT_EQ(piece(w.grad()), std::vector<float>{8 * 3 * 49});
  EXPECT_EQ(piece(x.grad()), std::vector<float>{2 * 7 * 36});
}

// What a region gives may be a captured tensor itself.
TEST(Recomputed, GivesACapturedTensor) {
  DTensor w(floats({3}, {1}));
  DTensor x(floats({7}, {1}));
  w.set_requires_grad(true);
  x.set_requires_grad(true);
  const DTensor h = mul(w, 2.0);
  const auto give = [&](std::span<const DTensor>) { return h; };
  sum(mul(recomputed(give, {x}), h)).backward();  // 4 w²
  EXPECT_EQ(piece(w.grad()), std::vector<float>{24});
}

// The gradients of h that come from the region and from outside it are P(sum) and R.
TEST(Recomputed, CapturesOnAMesh) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"d", ranks}});
      DTensor w = leaf(floats({2}, {1}), mesh, {Replicate()});
      const DTensor x = leaf(counted({5}), mesh, {Shard(0)});
      const DTensor h = mul(w, 3.0);
      const auto region = [&](std::span<const DTensor> in) { return mul(in[0], h); };
      const DTensor y = sum(recomputed(region, {x}));  // 3 w 10
      add(y, sum(mul(h, h))).backward();               // and 9 w²
      EXPECT_EQ(whole(w.grad()), std::vector<float>{30 + 18 * 2});
      EXPECT_EQ(whole(x.grad()), std::vector<float>(5, 6));
    });
  }
}

// A pass of its own inside a hook takes what the outer one has counted: told, not a crash.
TEST(Recomputed, APassInAHookMayNotTakeANodeAway) {
  DTensor w(floats({3}, {1}));
  w.set_requires_grad(true);
  const DTensor h = mul(w, w);
  const DTensor y = mul(h, 2.0);
  DTensor other = sum(h);
  bool ran = false;
  add_grad_hook(y, [&](const DTensor& g) {
    other.backward();
    ran = true;
    return g;
  });
  EXPECT_THROW(sum(y).backward(), Error);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace dtensor
