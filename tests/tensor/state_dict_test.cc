#include "dtensor/tensor/state_dict.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

TensorMap a_dict() {
  return {{"bias", Tensor::arange(5)},
          {"steps", Tensor::of<int64_t>({7}, {})},
          {"sum", Tensor::arange(3)},
          {"w", Tensor::arange(14).view({7, 2})}};
}

StatePlaces places_on(const DeviceMesh& mesh) {
  const MeshLayout& m = mesh.layout();
  return {{"bias", {Layout(m, {5}, {Replicate(), Shard(0)}), DType::kFloat32}},
          {"steps", {Layout(m, {}, {}), DType::kInt64}},
          {"sum", {Layout(m, {3}, {Partial()}), DType::kFloat32}},
          {"w", {Layout(m, {7, 2}, {Shard(0), Shard(1)}), DType::kFloat32}}};
}

void expect_dict(const TensorMap& got) {
  const TensorMap want = a_dict();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, t] : want) {
    EXPECT_EQ(got.at(name).shape(), t.shape()) << name;
    EXPECT_EQ(got.at(name).dtype(), t.dtype()) << name;
    EXPECT_EQ(got.at(name).to(DType::kFloat64).to_vector<double>(),
              t.to(DType::kFloat64).to_vector<double>())
        << name;
  }
}

TEST(StateDict, IsDistributedWhereEveryRankHasIt) {
  run_ranks(5, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const TensorMap dict = a_dict();
    const DTensorMap placed = distribute_state(dict, mesh, places_on(mesh));
    EXPECT_EQ(comm.counters().calls, 0);
    ASSERT_EQ(placed.size(), 4U);
    EXPECT_EQ(placed.at("w").has_local(), mesh.coordinate().has_value());
    if (!mesh.coordinate()) return;
    const Coordinate at = *mesh.coordinate();
    for (const auto& name : {"bias", "w"}) {  // a Shard takes its part
      const DTensor& t = placed.at(name);
      EXPECT_EQ(
          t.local_tensor().to_vector<float>(),
          testing::piece_of(t.layout(), at, dict.at(name).to_vector<float>()).to_vector<float>());
    }
    // A Partial keeps the value at coordinate 0.
    EXPECT_EQ(placed.at("sum").local_tensor().to_vector<float>(),
              at[0] == 0 ? (Floats{0, 1, 2}) : (Floats{-0.0F, -0.0F, -0.0F}));
    for (const auto& [name, t] : placed) {
      EXPECT_NE(t.local_tensor().storage(), dict.at(name).storage()) << name;
    }
    expect_dict(gather_state(placed));
  });
}

TEST(StateDict, IsDistributedFromOneRankInOneCallPerGroup) {
  for (const int holder : {0, 3, 4}) {
    std::vector<int64_t> sent(5);
    run_ranks(5, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
      const TensorMap mine = comm.rank() == holder ? a_dict() : TensorMap();
      const DTensorMap placed =
          distribute_state(mine, mesh, places_on(mesh), {.from_rank = holder});
      sent[static_cast<size_t>(comm.rank())] = comm.counters().payload_bytes_sent;
      if (comm.rank() == holder || mesh.coordinate()) {
        // All ranks, and those at coordinate 0 of the Partial one's mesh dim.
        EXPECT_LE(comm.counters().calls, 2);
      }
      if (mesh.coordinate()) expect_dict(gather_state(placed));
    });
    // By hand: bytes that the others need. bias rows 3,2; sum at a = 0, both b; w 4,3 rows of 1.
    const int64_t w[] = {4, 4, 3, 3, 0};
    const int64_t bias[] = {3, 2, 3, 2, 0};
    const int64_t sum[] = {3, 3, 0, 0, 0};
    int64_t bytes = 0;
    for (int r = 0; r < 4; ++r) {
      if (r != holder) bytes += 4 * (w[r] + bias[r] + sum[r]) + 8;
    }
    for (int r = 0; r < 5; ++r) {
      EXPECT_EQ(sent[static_cast<size_t>(r)], r == holder ? bytes : 0) << "holder " << holder;
    }
  }
}

// The outside rank has no part in the addition of the terms, but in what follows.
TEST(StateDict, TermsAreGatheredToAnOutsideRank) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {0, 1});
    const auto value = [&](Placement p, float first) {
      const Layout layout(mesh.layout(), {4}, {p});
      if (!mesh.coordinate()) return DTensor(DType::kFloat32, layout, mesh);
      const bool cut = p.is_shard();
      const Tensor local = Tensor::arange(cut ? 2 : 4);
      for (int64_t i = 0; i < local.numel(); ++i) {
        local.data<float>()[i] += first + static_cast<float>(cut ? 2 * comm.rank() : 0);
      }
      return DTensor(local, layout, mesh);
    };
    const DTensorMap state{{"a", value(Partial(), 10)},
                           {"b", value(Shard(0), 100)},
                           {"c", value(Partial(PartialOp::kMax), 200)}};
    for (int pass = 0; pass < 2; ++pass) {
      const GatherStateOptions options{.to_rank = 2};
      const TensorMap got =
          pass == 0 ? gather_state(state, options) : gather_state_async(state, options).wait();
      if (comm.rank() != 2) continue;
      EXPECT_EQ(got.at("a").to_vector<float>(), (Floats{20, 22, 24, 26}));
      EXPECT_EQ(got.at("b").to_vector<float>(), (Floats{100, 101, 102, 103}));
      EXPECT_EQ(got.at("c").to_vector<float>(), (Floats{200, 201, 202, 203}));
    }
  });
}

TEST(StateDict, IsGatheredToAllOrToOneAlsoAsync) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 1}, {"b", 3}}, {0, 1, 3});  // 2 is outside
    const DTensorMap placed = distribute_state(a_dict(), mesh, places_on(mesh));
    ledger().clear();
    Pending<TensorMap> to_all = gather_state_async(placed);
    Pending<TensorMap> to_two = gather_state_async(placed, {.to_rank = 2});
    Pending<TensorMap> forgotten = gather_state_async(placed);
    forgotten.forget();
    const TensorMap all = to_all.wait();
    const TensorMap two = to_two.wait();
    if (mesh.coordinate()) {
      expect_dict(all);
      EXPECT_EQ(ledger().entries()[0].op, "gather_state");
      EXPECT_EQ(ledger().entries()[0].label, "bias");
      EXPECT_EQ(all.at("steps").storage(), placed.at("steps").local_tensor().storage())
          << "nothing had to move";
    } else {
      for (const auto& [name, t] : all) EXPECT_FALSE(t.defined()) << name;
    }
    if (comm.rank() == 2) {
      expect_dict(two);
    } else {
      for (const auto& [name, t] : two) EXPECT_FALSE(t.defined()) << name;
    }
  });
}

TEST(StateDict, NamesWhatDoesNotFit) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 1}});
    TensorMap dict = a_dict();
    dict.erase("bias");
    dict["extra"] = Tensor::zeros({1});
    dict["w"] = Tensor::zeros({7, 3});
    try {
      static_cast<void>(distribute_state(dict, mesh, places_on(mesh)));
      FAIL() << "took a dict that does not fit";
    } catch (const ArgumentError& e) {
      const std::string text = e.what();
      for (const char* part :
           {"\"bias\"", "\"extra\"", "\"w\" is f32[7,3] and shall be f32[7,2]"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    EXPECT_THROW(
        static_cast<void>(distribute_state(a_dict(), mesh, places_on(mesh), {.from_rank = 2})),
        ArgumentError);
    const DeviceMesh other(comm, {{"y", 2}});
    const DTensorMap two{{"p", zeros({2}, mesh, {})}, {"q", zeros({2}, other, {})}};
    EXPECT_THROW(static_cast<void>(gather_state(two)), ArgumentError);
    EXPECT_TRUE(gather_state({}).empty());
    EXPECT_EQ(comm.counters().calls, 0);
    // On no mesh there is nothing to gather.
    expect_dict(gather_state({{"bias", DTensor(a_dict()["bias"])},
                              {"steps", DTensor(a_dict()["steps"])},
                              {"sum", DTensor(a_dict()["sum"])},
                              {"w", DTensor(a_dict()["w"])}}));
  });
}

}  // namespace
}  // namespace dtensor
