#include "dtensor/tensor/from_rank.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/local.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

TEST(DistributeFromRank, SendsEachRankWhatItNeedsAndNoMore) {
  for (const int holder : {0, 2, 3}) {  // 3 is outside the mesh
    struct Case {
      std::vector<Placement> placements;
      int64_t elements;  // that the others need
    };
    // 7 rows of 3 over ranks 2, 0, 1: rows 3, 2, 2.
    const int64_t own_rows = holder == 2 ? 3 : holder == 0 ? 2 : 0;
    const int64_t others = holder == 3 ? 3 : 2;
    const std::vector<Case> cases{{{Shard(0)}, 21 - 3 * own_rows},
                                  {{Shard(1)}, 21 - (holder == 3 ? 0 : 7)},
                                  {{Replicate()}, 21 * others},
                                  {{Partial()}, holder == 2 ? 0 : 21},
                                  {{Partial(PartialOp::kMax)}, 21 * others}};
    for (const Case& c : cases) {
      std::vector<int64_t> sent(5);
      run_ranks(5, [&](comm::Comm& comm) {
        const DeviceMesh mesh(comm, {{"x", 3}}, {2, 0, 1});
        const Tensor whole = Tensor::arange(21).view({7, 3});
        // The others pass nothing, with shape and dtype stated, or anything of that shape.
        const Tensor mine = comm.rank() == holder ? whole
                            : comm.rank() == 1    ? Tensor::zeros({7, 3})
                                                  : Tensor();
        ledger().clear();
        const DTensor t =
            distribute(mine, mesh, c.placements,
                       {.from_rank = holder, .shape = Shape{7, 3}, .dtype = DType::kFloat32});
        sent[static_cast<size_t>(comm.rank())] = comm.counters().payload_bytes_sent;
        EXPECT_EQ(t.layout(), Layout(mesh.layout(), {7, 3}, c.placements));
        EXPECT_EQ(t.has_local(), mesh.coordinate().has_value());
        if (!mesh.coordinate()) return;
        EXPECT_EQ(full(t).to_vector<float>(), whole.to_vector<float>());
        if (comm.rank() == holder) {
          EXPECT_NE(t.local_tensor().storage(), mine.storage());
        }
        if (c.elements > 0) {
          EXPECT_EQ(ledger().entries().at(0).op, "distribute");
          EXPECT_EQ(ledger().entries().at(0).payload_bytes, c.elements * 4);
        }
      });
      for (int r = 0; r < 5; ++r) {
        EXPECT_EQ(sent[static_cast<size_t>(r)], r == holder ? c.elements * 4 : 0)
            << "holder " << holder << " " << to_string(c.placements[0]) << " rank " << r;
      }
    }
  }
}

TEST(DistributeFromRank, OfAStridedTensorAndOfOneRank) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Tensor t = Tensor::arange(12).view({4, 3}).transpose(0, 1);
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      const DTensor d =
          distribute(comm.rank() == 1 ? t : Tensor::zeros({3, 4}), mesh, {p}, {.from_rank = 1});
      EXPECT_EQ(full(d).to_vector<float>(), t.to_vector<float>());
    }
    const DeviceMesh alone(comm, {{"x", 1}}, {1});
    const DTensor d = distribute(t, alone, {Shard(0)}, {.from_rank = 1});
    if (comm.rank() == 1) {
      EXPECT_NE(d.local_tensor().storage(), t.storage());
    }
  });
}

TEST(DistributeFromRank, SaysWhatIsMissing) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const auto fails = [&](const Tensor& t, const FromRank& from) {
      EXPECT_THROW(static_cast<void>(distribute(t, mesh, {Shard(0)}, from)), ArgumentError);
    };
    fails(Tensor::zeros({4}), {.from_rank = 2});
    fails(Tensor::zeros({4}), {.from_rank = -1});
    fails(Tensor::zeros({4}), {.from_rank = 0, .shape = Shape{5}});
    fails(Tensor::zeros({4}), {.from_rank = 0, .dtype = DType::kInt32});
    fails(Tensor(), {.from_rank = 0, .dtype = DType::kFloat32});
    fails(Tensor(), {.from_rank = 0, .shape = Shape{4}});
    if (comm.rank() == 0) fails(Tensor(), {.shape = Shape{4}, .dtype = DType::kInt32});
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(FullOn, GivesTheWholeValueToOneRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 3}}, {1, 0, 3});
    const Tensor whole = Tensor::arange(10).view({5, 2});
    for (const int rank : {0, 2}) {  // 2 is outside
      for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial()}) {
        const DTensor t = distribute(whole, mesh, {p});
        const int64_t before = comm.counters().payload_bytes_sent;
        const Tensor got = full_on(t, rank);
        EXPECT_EQ(got.defined(), comm.rank() == rank);
        if (comm.rank() == rank) {
          EXPECT_EQ(got.to_vector<float>(), whole.to_vector<float>()) << to_string(p);
          if (!p.is_partial()) {
            EXPECT_EQ(comm.counters().payload_bytes_sent - before, 0)
                << "only others send, to the one";
          }
          if (p.is_replicate() && rank == 0) {
            EXPECT_EQ(got.storage(), t.local_tensor().storage());
          }
        }
      }
    }
    EXPECT_THROW(static_cast<void>(full_on(distribute(whole, mesh, {}), 4)), ArgumentError);
    EXPECT_THROW(static_cast<void>(full_on(DTensor(whole), 0)), ArgumentError);
  });
}

}  // namespace
}  // namespace dtensor
