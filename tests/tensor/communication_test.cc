#include "dtensor/tensor/communication.h"

#include <gtest/gtest.h>

#include <string>
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

// The message of what f() throws, empty where it throws no PlacementError.
template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const PlacementError& e) {
    return e.what();
  }
  return {};
}

TEST(NoCommunication, RefusesEveryCollectiveBeforeAnythingIsSent) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});  // rank 2 is outside
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    const DTensor p = redistribute(distribute(Tensor::arange(1), mesh, {}), {Partial()});
    ledger().clear();
    {
      const int opened = __LINE__ + 1;
      const NoCommunication silent;
      const int line = __LINE__ + 1;
      const auto gather = [&] { static_cast<void>(redistribute(t, {Replicate()})); };
      const std::string text = refused(gather);
      for (const std::string& part :
           {std::string("redistribute at "), "communication_test.cc:" + std::to_string(line),
            "communication_test.cc:" + std::to_string(opened), std::string("all_gather"),
            std::string("24 bytes"), std::string("\"x\"")}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " is missing: " << text;
      }
      const std::vector<DTensor> list{t, t};
      const std::vector<Layout> to(2, t.layout().with(0, Replicate()));
      EXPECT_NE(refused([&] { static_cast<void>(redistribute(list, to)); }), "");
      EXPECT_NE(refused([&] { redistribute_async(t, to[0]).forget(); }), "");
      if (mesh.coordinate()) {
        EXPECT_NE(refused([&] { static_cast<void>(full(t)); }), "");
        EXPECT_NE(refused([&] { static_cast<void>(p.item()); }), "");
        EXPECT_NE(refused([&] { static_cast<void>(equal(t, t)); }), "");
      }
      // What is free goes on.
      const DTensor r = distribute(Tensor::arange(6), mesh, {});
      EXPECT_EQ(redistribute(r, {Shard(0)}).has_local(), mesh.coordinate().has_value());
      EXPECT_EQ(redistribute(t, {Shard(0)}).impl(), t.impl());
    }
    EXPECT_EQ(comm.counters().calls, 0);
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_EQ(ledger().payload_bytes(), 0);
    EXPECT_EQ(redistribute(t, {Replicate()}).has_local(), mesh.coordinate().has_value());
  });
}

TEST(NoCommunication, IsNotLoosenedByAnInnerScope) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    const NoCommunication silent;
    const CommunicationCount count;
    EXPECT_NE(refused([&] { static_cast<void>(full(t)); }), "");
    EXPECT_EQ(count.totals().moves, 0);
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(NoCommunication, HoldsInABackwardPassThatRunsInside) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor w = distribute(Tensor::arange(4), mesh, {});
    w.set_requires_grad(true);
    const auto loss = [&] { return total(scale(redistribute(w, {Shard(0)}), 2)); };
    DTensor y;
    {
      const NoCommunication silent;
      y = loss();  // R -> S is free
    }
    const std::string text = refused([&] {
      const NoCommunication silent;
      loss().backward();  // its adjoint is an all-gather
    });
    EXPECT_NE(text.find("all_gather"), std::string::npos) << text;
    EXPECT_EQ(comm.counters().calls, 0);
    y.backward();  // after the scope it may
    EXPECT_EQ(w.grad().local_tensor().to_vector<float>(), (Floats{2, 2, 2, 2}));
  });
}

TEST(CommunicationCount, CountsWithoutEntriesAndNests) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    ledger().clear();
    const CommunicationCount outer;
    EXPECT_EQ(full(t).numel(), 6);
    {
      const CommunicationCount inner;
      static_cast<void>(redistribute(t, {Replicate()}, {.wire_dtype = DType::kBFloat16}));
      EXPECT_EQ(inner.totals().moves, 1);
      EXPECT_EQ(inner.totals().payload_bytes, 24);
      EXPECT_EQ(inner.totals().wire_bytes, 12);
    }
    EXPECT_EQ(outer.totals().moves, 2);
    EXPECT_EQ(outer.totals().payload_bytes, 48);
    EXPECT_EQ(outer.totals().wire_bytes, 36);
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_EQ(ledger().payload_bytes(), 48) << "totals go on";
    EXPECT_EQ(comm.counters().payload_bytes_sent, 18) << "half of what both ranks sent";
  });
}

TEST(CommunicationCount, KnowsWhatStartedInsideAndEndedOutside) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = distribute(Tensor::arange(6), mesh, {Shard(0)});
    const CommunicationCount outer;
    Pending<DTensor> pending = [&] {
      const CommunicationCount inner;
      return redistribute_async(t, t.layout().with(0, Replicate()));
    }();
    EXPECT_EQ(pending.wait().local_tensor().numel(), 6);
    EXPECT_EQ(outer.totals().moves, 1);
  });
}

}  // namespace
}  // namespace dtensor
