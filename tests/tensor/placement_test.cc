// DTensors lie where their layout says: named cuts of named sizes, as values on ranks.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/comm/comm_error.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;
using Bits = std::vector<uint32_t>;

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

// Numbers whose bits tell whether they were only moved: NaN payloads and -0.0 among them.
Tensor odd_floats(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const auto u = static_cast<uint32_t>(i);
    t.data<float>()[i] = i % 3 == 0   ? std::bit_cast<float>(0x7fc00001U + u)
                         : i % 3 == 1 ? std::bit_cast<float>(0x80000000U)
                                      : static_cast<float>(i);
  }
  return t;
}
Bits bits(const Tensor& t) {
  Bits all;
  for (const float x : t.to_vector<float>()) all.push_back(std::bit_cast<uint32_t>(x));
  return all;
}

struct Case {
  std::string layout;
  int64_t length;
  std::vector<int64_t> begins;  // by rank; with the sizes
  std::vector<int64_t> sizes;
};

// What each rank holds, from the layout as text and from whole tensors; back it is bit-equal.
void check(const Case& c) {
  const Layout layout = parse_layout(c.layout, {c.length});
  run_ranks(layout.mesh().size(), [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, layout.mesh());
    const auto r = static_cast<size_t>(comm.rank());
    Floats want;
    for (int64_t i = 0; i < c.sizes[r]; ++i) want.push_back(static_cast<float>(c.begins[r] + i));
    const DTensor t = distribute(Tensor::arange(c.length), mesh, layout);
    EXPECT_EQ(values(t), want) << c.layout << " of " << c.length << ", rank " << r;
    EXPECT_EQ(t.shape(), Shape{c.length});
    EXPECT_EQ(layout.box_of(comm.rank()), (Box{{c.begins[r]}, {c.sizes[r]}}));

    const Tensor odd = odd_floats({c.length});
    const DTensor cut = distribute(odd, mesh, layout);
    EXPECT_EQ(bits(full(cut)), bits(odd));
    // Also through every mesh dim on its own, innermost level first.
    DTensor gathered = cut;
    const auto levels = layout.spec().levels(0);
    for (size_t k = levels.size(); k-- > 0;) {
      gathered = redistribute(gathered, gathered.layout().with(levels[k].mesh_dim, Replicate()));
    }
    EXPECT_EQ(bits(gathered.local_tensor()), bits(odd)) << c.layout;
    EXPECT_EQ(bits(redistribute(gathered, layout).local_tensor()), bits(cut.local_tensor()));
  });
}

// pytorch#103306, pytorch#143372, pytorch#108869
TEST(Placement, SizesAreBalancedAndEmptyShardsLegal) {
  for (const Case& c :
       std::vector<Case>{{"x=4:S(0)", 5, {0, 2, 3, 4}, {2, 1, 1, 1}},
                         {"x=4:S(0)", 10, {0, 3, 5, 8}, {3, 2, 3, 2}},
                         {"x=4:S(0)", 1, {0, 1, 1, 1}, {1, 0, 0, 0}},
                         {"x=4:S(0)", 2, {0, 1, 1, 2}, {1, 0, 1, 0}},
                         {"x=4:S(0)", 0, {0, 0, 0, 0}, {0, 0, 0, 0}},
                         {"x=8:S(0)", 17, {0, 3, 5, 7, 9, 11, 13, 15}, {3, 2, 2, 2, 2, 2, 2, 2}}}) {
    check(c);
  }
}

// pytorch#161368, pytorch#194457
TEST(Placement, EachMeshDimCutsWhatTheOneBeforeLeft) {
  for (const Case& c : std::vector<Case>{
           {"a=2,b=4:S(0),S(0)", 2, {0, 1, 1, 1, 1, 2, 2, 2}, {1, 0, 0, 0, 1, 0, 0, 0}},
           {"a=2,b=3:S(0),S(0)", 9, {0, 2, 4, 5, 7, 8}, {2, 2, 1, 2, 1, 1}},
           {"a=2,b=4:S(0),S(0)", 5, {0, 1, 2, 3, 3, 4, 4, 5}, {1, 1, 1, 0, 1, 0, 1, 0}}}) {
    check(c);
  }
  run_ranks(6, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 3}});
    const DTensor nine = distribute(Tensor::arange(9), mesh, {Shard(0), Shard(0)});
    EXPECT_EQ(values(redistribute(nine, mesh["b"], {Replicate()})),
              comm.rank() < 3 ? (Floats{0, 1, 2, 3, 4}) : (Floats{5, 6, 7, 8}));
  });
}

// pytorch#129229, pytorch#129206, pytorch#163843, pytorch#168134
TEST(Placement, FsdpOverTensorParallelismIsCutLast) {
  const std::string order = "dp=2,tp=2:S(0),S(0);order=0:tp,dp";
  for (const Case& c : std::vector<Case>{
           {order, 3, {0, 2, 1, 3}, {1, 1, 1, 0}},
           {order, 4, {0, 2, 1, 3}, {1, 1, 1, 1}},
           {order, 5, {0, 3, 2, 4}, {2, 1, 1, 1}},
           {order, 6, {0, 3, 2, 5}, {2, 2, 1, 1}},
           {order, 7, {0, 4, 2, 6}, {2, 2, 2, 1}},
           {"dp=3,tp=2:S(0),S(0);order=0:tp,dp", 9, {0, 5, 2, 7, 4, 8}, {2, 2, 2, 1, 1, 1}}}) {
    check(c);
  }
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const DTensor tp = distribute(Tensor::arange(5), mesh, {Replicate(), Shard(0)});
    const DTensor both = redistribute(tp, mesh["dp"], {Shard(0)});
    EXPECT_EQ(to_string(both.layout()), "dp=2,tp=2:S(0),S(0);order=0:tp,dp");
    EXPECT_EQ(values(redistribute(both, mesh["dp"], {Replicate()})),
              comm.rank() % 2 == 0 ? (Floats{0, 1, 2}) : (Floats{3, 4}));
  });
}

// pytorch#193224
TEST(Placement, AMeshKeepsTheRankOrderThatItWasGiven) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}}, {3, 1, 0, 2});
    const auto r = static_cast<size_t>(comm.rank());
    const std::vector<Floats> both = {{4, 5}, {2, 3}, {6, 7}, {0, 1}};
    EXPECT_EQ(values(distribute(Tensor::arange(8), mesh, {Shard(0), Shard(0)})), both[r]);
    const std::vector<Floats> second = {{0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}, {0, 1, 2, 3}};
    const DTensor t = distribute(Tensor::arange(8), mesh, {Replicate(), Shard(0)});
    EXPECT_EQ(values(t), second[r]);
    EXPECT_EQ(full(t).to_vector<float>(), Tensor::arange(8).to_vector<float>());
    // The rank in a group is the coordinate.
    for (const int m : {0, 1}) {
      const std::vector<int> dims = {m};
      EXPECT_EQ(mesh.group(dims).rank(), (*mesh.coordinate())[m]);
    }
    EXPECT_FALSE(mesh == DeviceMesh(comm, {{"a", 2}, {"b", 2}}));
  });
}

// vllm#50735
TEST(Placement, UnitsAndWeightsUseTheSameCut) {
  for (const Case& c : std::vector<Case>{
           {"x=4:S(0);unit=0:x:4", 24, {0, 8, 12, 20}, {8, 4, 8, 4}},
           {"x=4:S(0);unit=0:x:4", 22, {0, 8, 12, 20}, {8, 4, 8, 2}},
           {"x=3:S(0);unit=0:x:16", 32, {0, 16, 32}, {16, 16, 0}},
           {"x=3:S(0);unit=0:x:4", 8, {0, 4, 8}, {4, 4, 0}},
           {"x=2:S(0);weights=x:2,1", 9, {0, 6}, {6, 3}},
           {"x=3:S(0);weights=x:2,1,1", 10, {0, 5, 8}, {5, 3, 2}},
           {"x=3:S(0);weights=x:1,0,1", 5, {0, 3, 3}, {3, 0, 2}},
           {"dp=2,tp=2:S(0),S(0);order=0:tp,dp;unit=0:tp:6", 30, {0, 18, 9, 24}, {9, 6, 9, 6}},
           {"a=2,b=3:S(0),S(0);weights=a:2,1", 11, {0, 3, 6, 8, 9, 10}, {3, 3, 2, 1, 1, 1}}}) {
    check(c);
  }
}

// pytorch#169381, hyper-parallel#428: on each mesh dim of size 1, also on several at once.
TEST(Placement, MeshDimsOfSizeOneCostNothing) {
  for (const std::vector<MeshDim>& dims :
       {std::vector<MeshDim>{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}},
        std::vector<MeshDim>{{"a", 2}, {"b", 1}, {"c", 2}, {"d", 1}}}) {
    const MeshLayout layout(dims);
    run_ranks(layout.size(), [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, layout);
      const Tensor whole = odd_floats({5, 3});
      const auto calls = [&] { return comm.counters().calls; };
      const int64_t before = calls();
      for (int m = 0; m < mesh.ndim(); ++m) {
        if (layout.size(m) > 1) continue;
        const std::string name = layout.name(m);
        for (const PartialOp op :
             {PartialOp::kSum, PartialOp::kMin, PartialOp::kMax, PartialOp::kProd}) {
          for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial(op)}) {
            for (const Placement q : {Replicate(), Shard(0), Shard(1), Partial(op)}) {
              // Beside a cut of the same rows by the other mesh dims, and on all dims of size 1.
              const DTensor t = distribute(whole, mesh, {Replicate(), Shard(0), Shard(0), p});
              const DTensor from = redistribute(t, mesh[name], {p});
              const DTensor to = redistribute(from, mesh[name], {q});
              EXPECT_EQ(to.layout().placement(m), q);
              EXPECT_EQ(bits(to.local_tensor()), bits(t.local_tensor()));
              const DTensor all = redistribute(to, mesh.slice({"b", "d"}), {q, p});
              EXPECT_EQ(bits(all.local_tensor()), bits(t.local_tensor()));
            }
          }
        }
      }
      EXPECT_EQ(calls(), before);
      EXPECT_TRUE(Context::current().slot<Ledger>().entries().empty());
      const DTensor x = redistribute(distribute(Tensor::arange(5), mesh, {}),
                                     mesh.slice({"b", "c"}), {Shard(0), Shard(0)});
      EXPECT_EQ(to_string(x.spec()), "[a:R, b:S(0), c:S(0), d:R]");
      if (mesh.size() == 4) {
        EXPECT_EQ(values(x), comm.rank() % 2 == 0 ? (Floats{0, 1, 2}) : (Floats{3, 4}));
      }
    });
  }
}

// pytorch#110762, pytorch#172812, pytorch#144109, torchtitan#4593: rows 3,3,3,1 are no cut of ten.
TEST(Placement, ALocalShapeThatDoesNotFitEndsAllRanksWithANamedError) {
  for (const bool rows : {true, false}) {
    const Shape shape = rows ? Shape{10, 2} : Shape{2, 14};
    const std::vector<int64_t> given =
        rows ? std::vector<int64_t>{3, 3, 3, 1} : std::vector<int64_t>{2, 3, 4, 5};
    const std::vector<std::string> required =
        rows ? std::vector<std::string>{"", "[2,2]", "", "[2,2]"}
             : std::vector<std::string>{"[2,4]", "", "", "[2,3]"};
    std::vector<std::string> here(4);
    std::vector<std::string> later(4);
    const auto on_rank = [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", 4}});
      const auto r = static_cast<size_t>(comm.rank());
      const Layout layout(mesh.layout(), shape, {Shard(rows ? 0 : 1)});
      const Tensor piece = Tensor::zeros(rows ? Shape{given[r], 2} : Shape{2, given[r]});
      DTensor t;
      try {
        t = from_local(DTensor(piece), mesh, layout);
      } catch (const ArgumentError& e) {
        here[r] = e.what();
        throw;
      }
      try {
        static_cast<void>(full(t));
      } catch (const comm::CommError& e) {
        later[r] = e.what();
        throw;
      }
    };
    EXPECT_THROW(run_ranks(4, on_rank), Error);
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_NE(here[r].empty(), later[r].empty()) << "rank " << r << " got no error";
      EXPECT_EQ(here[r].empty(), required[r].empty()) << here[r];
      if (required[r].empty()) continue;
      const std::string found =
          rows ? "[" + std::to_string(given[r]) + ",2]" : "[2," + std::to_string(given[r]) + "]";
      EXPECT_NE(here[r].find(found), std::string::npos) << here[r];
      EXPECT_NE(here[r].find(required[r]), std::string::npos) << here[r];
    }
  }
}

// pytorch#144109: without a global shape there is none to guess; asked for by name, it is agreed.
TEST(Placement, TheGlobalShapeIsGivenOrAgreedAndNeverGuessed) {
  const std::vector<std::vector<int64_t>> wrong = {{3, 3, 3, 1}, {2, 3, 4, 5}};
  const std::vector<std::vector<int64_t>> right = {{3, 2, 3, 2}, {4, 3, 4, 3}};
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const auto r = static_cast<size_t>(comm.rank());
    for (const int d : {0, 1}) {
      const auto piece = [&](const std::vector<std::vector<int64_t>>& sizes) {
        const int64_t n = sizes[static_cast<size_t>(d)][r];
        return DTensor(Tensor::zeros(d == 0 ? Shape{n, 2} : Shape{2, n}));
      };
      const Shape shape = d == 0 ? Shape{10, 2} : Shape{2, 14};
      const int64_t calls = comm.counters().calls;
      EXPECT_EQ(from_local(piece(right), mesh, {Shard(d)}, {.shape = shape}).shape(), shape);
      for (const auto& sizes : {right, wrong}) {
        try {
          static_cast<void>(from_local(piece(sizes), mesh, {Shard(d)}, {}));
          ADD_FAILURE() << "a global shape was guessed";
        } catch (const ArgumentError& e) {
          EXPECT_NE(std::string(e.what()).find("shape"), std::string::npos) << e.what();
        }
      }
      EXPECT_EQ(comm.counters().calls, calls) << "a message was sent";
      EXPECT_EQ(from_local(piece(right), mesh, {Shard(d)}, {.shape = kAgree}).shape(), shape);
      // On every rank, also on those whose piece is what a right cut would give them.
      EXPECT_THROW(static_cast<void>(from_local(piece(wrong), mesh, {Shard(d)}, {.shape = kAgree})),
                   ArgumentError);
    }
  });
}

}  // namespace
}  // namespace dtensor
