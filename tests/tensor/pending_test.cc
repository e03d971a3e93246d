#include "dtensor/tensor/pending.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/test_ops.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using testing::scale;
using testing::total;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

Layout whole(const DTensor& t) { return Layout::replicated(t.layout().mesh(), t.shape()); }

TEST(RedistributeAsync, StartsWithoutWaitingAndEndsLater) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    // Rank 1 starts only after it met rank 0, which has started before: a start that waited would
    // hang here.
    if (comm.rank() == 1) comm.barrier().wait();
    Pending<DTensor> pending = redistribute_async(t, whole(t));
    if (comm.rank() == 0) comm.barrier().wait();
    const DTensor r = pending.wait();
    EXPECT_EQ(r.local_tensor().to_vector<float>(), Tensor::arange(6).to_vector<float>());
    EXPECT_EQ(r.layout(), whole(t));
    EXPECT_THROW(static_cast<void>(pending.wait()), ArgumentError);
    EXPECT_THROW(static_cast<void>(pending.ready()), ArgumentError);
  });
}

TEST(RedistributeAsync, MayBeForgotten) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    {
      const DTensor t = distribute(Tensor::full({4096}, 3), mesh, {Shard(0)});
      Pending<DTensor> pending = redistribute_async(t, whole(t));
      pending.forget();
      EXPECT_THROW(static_cast<void>(pending.wait()), ArgumentError);
      static_cast<void>(redistribute_async(t, whole(t)));
      // Its operand goes too: the messages keep its memory until they are through.
    }
    const DTensor t = distribute(Tensor::arange(5), mesh, {Shard(0)});
    EXPECT_EQ(full(t).to_vector<float>(), Tensor::arange(5).to_vector<float>());
  });
}

TEST(RedistributeAsync, OfWhatNeedNotMoveIsTheArgument) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    Pending<DTensor> pending = redistribute_async(t, t.layout());
    EXPECT_TRUE(pending.ready());
    EXPECT_EQ(pending.wait().impl(), t.impl());
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(RedistributeAsync, IsRecordedAsItWasStarted) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    t.set_requires_grad(true);
    auto pending = redistribute_async(t, whole(t));
    DTensor r;
    {
      const NoGrad no_grad;
      r = pending.wait();
    }
    ASSERT_TRUE(r.requires_grad());
    total(scale(redistribute(r, {Shard(0)}), 2)).backward();
    EXPECT_EQ(t.grad().local_tensor().to_vector<float>(), (Floats{2, 2, 2}));
  });
}

TEST(RedistributeList, MovesInOneCallForwardAndBackward) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    std::vector<DTensor> ts;
    std::vector<Layout> to;
    for (const Shape& shape : std::vector<Shape>{{7}, {5, 3}, {2, 2}}) {
      ts.push_back(distribute(Tensor::arange(shape.numel()).view(shape), mesh, {Shard(0)}));
      ts.back().set_requires_grad(true);
      to.push_back(whole(ts.back()));
    }
    ts.push_back(distribute(Tensor::arange(3), mesh, {}));  // need not move
    to.push_back(ts.back().layout());
    ledger().clear();
    const std::vector<DTensor> out = redistribute(ts, to);
    EXPECT_EQ(comm.counters().calls, 1);
    ASSERT_EQ(out.size(), 4U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out[i].local_tensor().to_vector<float>(),
                Tensor::arange(ts[i].numel()).to_vector<float>());
      EXPECT_EQ(out[i].layout(), to[i]);
    }
    EXPECT_EQ(out[3].impl(), ts[3].impl());
    // Each rank scales its copy, so that gradients are Partial: one reduce-scatter for the two
    // that have one.
    ledger().clear();
    const LocalOptions partial{.grad = GradPlacement::kPartial};
    const auto factor = static_cast<float>(comm.rank() + 1);
    testing::plus(total(scale(local(out[0], partial), factor)),
                  total(scale(local(out[1], partial), factor)))
        .backward();
    EXPECT_EQ(comm.counters().calls, 2);
    ASSERT_EQ(ledger().entries().size(), 2U);
    EXPECT_EQ(ledger().entries()[0].call, ledger().entries()[1].call);
    EXPECT_EQ(ledger().entries()[0].kind, StepKind::kReduceScatter);
    for (size_t i = 0; i < 2; ++i) {
      for (const float g : ts[i].grad().local_tensor().to_vector<float>()) EXPECT_EQ(g, 10);
    }
    EXPECT_FALSE(ts[2].grad().defined());
  });
}

TEST(RedistributeList, ChecksItsArguments) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DeviceMesh other(comm, {{"y", 2}});
    const std::vector<DTensor> ts{distribute(Tensor::arange(4), mesh, {Shard(0)}),
                                  distribute(Tensor::arange(4), other, {Shard(0)})};
    const std::vector<Layout> to{whole(ts[0]), whole(ts[1])};
    EXPECT_THROW(static_cast<void>(redistribute(ts, to)), ArgumentError);
    EXPECT_THROW(static_cast<void>(redistribute(ts, std::span(to).first(1))), ArgumentError);
    EXPECT_TRUE(redistribute(std::span<const DTensor>{}, std::span<const Layout>{}).empty());
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

}  // namespace
}  // namespace dtensor
