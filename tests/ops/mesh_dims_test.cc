// Ops and the dims of a mesh: which mesh dims cut an operand, in which order, on which mesh.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/ops/elementwise.h"
#include "dtensor/ops/matmul.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/tensor/policy.h"
#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using ::testing::AllOf;
using testing::counted;
using ::testing::ElementsAre;
using testing::floats;
using ::testing::HasSubstr;
using testing::moved_bytes;
using testing::piece;
using testing::placement_error;
using testing::run_ranks;
using testing::whole;

DTensor by_order(const Tensor& full, const DeviceMesh& mesh, int dim, std::vector<int> order) {
  Layout layout = Layout::replicated(mesh.layout(), full.shape());
  for (const int m : order) layout = layout.with(m, Shard(dim));
  return distribute(full, mesh, layout);
}

// pytorch#193224
TEST(MeshDims, TensorsOfTwoMeshesDoNotMeet) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh given(comm, {{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
    const DeviceMesh counting(comm, {{"a", 2}, {"b", 2}});
    const DTensor x = distribute(counted({8}), given, {Shard(0)});
    const DTensor y = distribute(counted({8}), counting, {Shard(0)});
    const std::string text = placement_error([&] { add(x, y); });
    EXPECT_THAT(text, AllOf(HasSubstr("a=2,b=2@3,1,0,2"), HasSubstr("add")));
    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_NE(placement_error([&] { add(x, y); }), "");
    EXPECT_EQ(moved_bytes(), 0);
  });
}

// pytorch#169381, hyper-parallel#428: names of dims of the root mesh, of one rank or more.
TEST(MeshDims, OfSizeOneTakePartInOpsAndCostNothing) {
  for (const std::vector<MeshDim>& dims :
       {std::vector<MeshDim>{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}},
        std::vector<MeshDim>{{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}}}) {
    const MeshLayout layout(dims);
    run_ranks(layout.size(), [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, layout);
      const DTensor on_mesh = distribute(counted({5}), mesh, {});
      const DTensor x = redistribute(on_mesh, mesh.slice({"b", "c"}), {Shard(0), Shard(0)});
      const DTensor y = redistribute(on_mesh, mesh["a"], {Replicate()});
      const DTensor other = redistribute(on_mesh, mesh["d"], {Shard(0)});
      for (const DTensor& product : {mul(x, y), mul(y, x)}) {
        EXPECT_EQ(to_string(product.spec()), "[a:R, b:S(0), c:S(0), d:R]");
        const bool first = comm.rank() % 2 == 0;
        const std::vector<float> want = comm.size() == 1 ? std::vector<float>{0, 1, 4, 9, 16}
                                        : first          ? std::vector<float>{0, 1, 4}
                                                         : std::vector<float>{9, 16};
        EXPECT_EQ(piece(product), want);
      }
      // Each operand is cut by mesh dims that the other is R on.
      EXPECT_EQ(to_string(mul(x, other).spec()), "[a:R, b:S(0), c:S(0), d:S(0)]");
      EXPECT_EQ(piece(mul(other, x)), piece(mul(x, y)));
      EXPECT_EQ(piece(add(x, other)), piece(mul(x, 2.0)));
      EXPECT_TRUE(Context::current().slot<Ledger>().entries().empty());
      EXPECT_EQ(comm.counters().calls, 0);
      // A sum over the cut rows is Partial on their mesh dims, also on those of one rank.
      EXPECT_EQ(to_string(sum(mul(x, other), {0}).spec()), "[a:R, b:P(sum), c:P(sum), d:P(sum)]");
      EXPECT_EQ(sum(mul(x, other), {0}).item(), 30.0);
    });
  }
}

// pytorch#166598, pytorch#166999: both operands print [S(0), S(0)] and have the sizes 2,1,1,1.
TEST(MeshDims, CutAlikeMeansInTheSameOrder) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const Tensor tens = floats({10, 20, 30, 40, 50}, {5});
    const DTensor x = by_order(counted({5}), mesh, 0, {0, 1});
    const DTensor y = by_order(tens, mesh, 0, {1, 0});
    EXPECT_EQ(piece(x).size(), comm.rank() == 0 ? 2U : 1U);
    EXPECT_EQ(piece(y).size(), comm.rank() == 0 ? 2U : 1U);
    const auto orders = AllOf(HasSubstr("by a, then b"), HasSubstr("by b, then a"),
                              HasSubstr("Use redistribute("), HasSubstr("; or redistribute("));
    EXPECT_THAT(placement_error([&] { add(x, y); }), orders);
    const DTensor left = by_order(counted({2, 5}), mesh, 1, {0, 1});
    const DTensor right = by_order(counted({5, 2}), mesh, 0, {1, 0});
    EXPECT_THAT(placement_error([&] { matmul(left, right); }), orders);

    const DTensor inner = distribute(counted({5}), mesh, {Replicate(), Shard(0)});
    const std::string text = placement_error([&] { add(inner, by_order(tens, mesh, 0, {0, 1})); });
    EXPECT_THAT(text, HasSubstr("not cut alike"));
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_EQ(comm.counters().calls, 0);
    const DTensor sums = add(inner, y);  // joins the other order silently
    EXPECT_EQ(moved_bytes(), 0);
    EXPECT_EQ(sums.layout(), y.layout());
    EXPECT_THAT(whole(sums), ElementsAre(10, 21, 32, 43, 54));

    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(whole(add(x, y)), ElementsAre(10, 21, 32, 43, 54));
    EXPECT_THAT(whole(matmul(left, right)), ElementsAre(60, 70, 160, 195));
    EXPECT_THAT(whole(add(inner, by_order(tens, mesh, 0, {0, 1}))),
                ElementsAre(10, 21, 32, 43, 54));
  });
}

// The same on three mesh dims: only one of the six orders is cut alike, whatever is asked.
TEST(MeshDims, EveryOtherOrderIsRefusedAndMovedUnderAuto) {
  run_ranks(8, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}, {"c", 2}});
    const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                  {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto& p : orders) {
      for (const auto& q : orders) {
        const DTensor x = by_order(counted({11}), mesh, 0, p);
        const DTensor y = by_order(counted({11}), mesh, 0, q);
        if (p == q) {
          EXPECT_EQ(add(x, y).layout(), x.layout());
        } else {
          EXPECT_NE(placement_error([&] { add(x, y); }), "");
        }
        const PolicyScope policy(RedistributePolicy::kAuto);
        EXPECT_EQ(whole(add(x, y)), whole(mul(DTensor(counted({11})), 2.0)));
      }
    }
  });
}

TEST(MeshDims, UnitsMatterWhereBoundariesDiffer) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const auto plain = [&](int64_t n) { return distribute(counted({n}), mesh, {Shard(0)}); };
    const auto in_units = [&](int64_t n) {
      return distribute(counted({n}), mesh, plain(n).layout().with(0, Shard(0), 2));
    };
    EXPECT_THAT(piece(add(in_units(8), plain(8))).size(), 4U);
    EXPECT_THAT(piece(add(plain(8), in_units(8))).size(), 4U);
    EXPECT_THAT(placement_error([&] { add(in_units(6), plain(6)); }),
                AllOf(HasSubstr("(4,2)"), HasSubstr("(3,3)")));
    EXPECT_EQ(moved_bytes(), 0);
    const PolicyScope policy(RedistributePolicy::kAuto);
    EXPECT_THAT(whole(add(plain(6), in_units(6))), ElementsAre(0, 2, 4, 6, 8, 10));
  });
}

}  // namespace
}  // namespace dtensor
