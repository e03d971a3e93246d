// Redistribute between two meshes.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/communication.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

Floats values(const DTensor& t) {
  return t.has_local() ? t.local_tensor().to_vector<float>() : Floats{};
}

// What the rank holds of arange(numel) by a layout; nothing outside its mesh.
Floats want(const Layout& layout, int rank) {
  const auto at = layout.mesh().coordinate_of(rank);
  if (!at) return {};
  return testing::piece_of(layout, *at, Tensor::arange(layout.shape().numel()).to_vector<float>())
      .to_vector<float>();
}

// pytorch#180346: from ranks 0, 1 to ranks 1, 2, 3; no copy of the whole on the way.
TEST(CrossMesh, MovesToAMeshOfOtherRanks) {
  std::vector<int64_t> sent(5);
  run_ranks(5, [&](comm::Comm& comm) {
    const DeviceMesh two(comm, {{"x", 2}}, {0, 1});
    const DeviceMesh three(comm, {{"y", 3}}, {1, 2, 3});
    const DTensor t = distribute(Tensor::arange(5), two, {Shard(0)});
    ledger().clear();
    const DTensor moved = redistribute(t, three, {Shard(0)});
    const Floats pieces[] = {{}, {0, 1}, {2, 3}, {4}, {}};
    const auto r = static_cast<size_t>(comm.rank());
    EXPECT_EQ(values(moved), pieces[r]);
    EXPECT_EQ(moved.has_local(), r >= 1 && r <= 3);
    EXPECT_EQ(t.has_local(), r <= 1);
    EXPECT_EQ(moved.layout(), Layout(three.layout(), {5}, {Shard(0)}));
    EXPECT_EQ(moved.mesh(), three);
    EXPECT_EQ(t.shape(), Shape{5});
    if (r < 4) {  // every rank that takes part has the same entry
      ASSERT_EQ(ledger().entries().size(), 1U);
      EXPECT_EQ(ledger().entries()[0].kind, StepKind::kExchange);
      EXPECT_EQ(ledger().entries()[0].payload_bytes, 20);
      EXPECT_NE(to_string(ledger()).find("two meshes"), std::string::npos) << to_string(ledger());
    } else {
      EXPECT_TRUE(ledger().entries().empty());
      EXPECT_EQ(comm.counters().calls, 0);
    }
    sent[r] = comm.counters().payload_bytes_sent;
  });
  EXPECT_EQ(sent, (std::vector<int64_t>{12, 8, 0, 0, 0}));
}

TEST(CrossMesh, MovesBetweenMeshesOfEveryKind) {
  struct Case {
    const char* name;
    MeshLayout from;
    MeshLayout to;
  };
  const std::vector<Case> cases{
      {"disjoint", MeshLayout({{"x", 2}}, {0, 1}), MeshLayout({{"x", 2}}, {2, 3})},
      {"sub-mesh", MeshLayout({{"a", 2}, {"b", 2}}), MeshLayout({{"a", 2}}, {1, 2})},
      {"grown", MeshLayout({{"x", 2}}, {3, 0}), MeshLayout({{"a", 2}, {"b", 3}})},
      {"overlapping", MeshLayout({{"x", 3}}, {0, 1, 2}), MeshLayout({{"y", 4}}, {1, 2, 3, 4})},
      {"reordered", MeshLayout({{"x", 4}}), MeshLayout({{"x", 4}}, {2, 0, 3, 1})},
      {"renamed", MeshLayout({{"x", 4}}), MeshLayout({{"a", 2}, {"b", 2}})},
      {"one rank", MeshLayout({{"x", 1}}, {4}), MeshLayout({{"x", 3}}, {5, 4, 1})},
  };
  const std::vector<Shape> shapes{{5}, {0, 3}, {4, 3}, {}};
  for (const Case& c : cases) {
    run_ranks(6, [&](comm::Comm& comm) {
      const DeviceMesh from(comm, c.from);
      const DeviceMesh to(comm, c.to);
      for (const Shape& shape : shapes) {
        std::vector<Placement> choices{Replicate(), Partial(), Partial(PartialOp::kMax)};
        for (int d = 0; d < shape.ndim(); ++d) choices.push_back(Shard(d));
        for (const Placement a : choices) {
          for (const Placement b : choices) {
            if (a.is_partial() && b.is_partial() && a != b) continue;
            const std::string name =
                std::string(c.name) + to_string(shape) + to_string(a) + " -> " + to_string(b);
            const DTensor t = distribute(Tensor::arange(shape.numel()).view(shape), from, {a});
            ledger().clear();
            const DTensor moved = redistribute(t, to, {b});
            EXPECT_EQ(moved.layout(), Layout(to.layout(), shape, {b})) << name;
            EXPECT_EQ(moved.has_local(), to.coordinate().has_value()) << name;
            // The value is on one mesh for who has no part in it: ask there.
            if (to.coordinate()) {
              EXPECT_EQ(full(moved).to_vector<float>(),
                        Tensor::arange(shape.numel()).to_vector<float>())
                  << name;
            }
            if (b.is_shard()) {
              EXPECT_EQ(values(moved), want(moved.layout(), comm.rank())) << name;
            }
          }
        }
      }
    });
  }
}

TEST(CrossMesh, OverlappingRanksKeepWhatTheyHave) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh all(comm, {{"x", 4}});
    const DeviceMesh two(comm, {{"x", 2}}, {1, 3});
    const DTensor r = distribute(Tensor::arange(6), all, {});
    const LookAhead ahead = look_ahead(r, two, Layout(two.layout(), {6}, {Replicate()}));
    EXPECT_TRUE(ahead.is_free);
    EXPECT_EQ(ahead.shares_memory, two.coordinate().has_value());
    const DTensor kept = redistribute(r, two, {Replicate()});
    EXPECT_EQ(comm.counters().calls, 0);
    EXPECT_TRUE(ledger().entries().empty());
    if (two.coordinate()) {
      EXPECT_EQ(kept.local_tensor().storage(), r.local_tensor().storage());
    }
    const DTensor half = redistribute(r, two, {Shard(0)});
    EXPECT_EQ(comm.counters().calls, 0);
    EXPECT_EQ(values(half), want(half.layout(), comm.rank()));
    // To the very same mesh, by another handle, it is the argument.
    const DeviceMesh again(comm, {{"x", 4}});
    EXPECT_EQ(redistribute(r, again, {Replicate()}).impl(), r.impl());
  });
}

TEST(CrossMesh, PacksNothingThatIsOneRunOfMemory) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh two(comm, {{"x", 2}}, {0, 1});
    const DeviceMesh three(comm, {{"y", 3}}, {1, 2, 3});
    const auto allocations = [&](Placement from, Placement to) {
      const DTensor t = distribute(Tensor::arange(35).view({7, 5}), two, {from});
      const auto allocator = Context::current().slot<CurrentAllocator>().allocator;
      const int64_t before = allocator->stats().allocations;
      static_cast<void>(redistribute(t, three, {to}));
      return allocator->stats().allocations - before;
    };
    const int64_t result = three.coordinate() ? 1 : 0;
    EXPECT_EQ(allocations(Shard(0), Shard(0)), result) << "rows";
    EXPECT_EQ(allocations(Replicate(), Replicate()), result)
        << "a copy of its own also where the rank has it already";
    EXPECT_EQ(allocations(Shard(0), Replicate()), result);
  });
}

// A gradient goes back to where the tensor came from, also to ranks that have no part of the loss.
TEST(CrossMesh, GradientsComeBack) {
  run_ranks(5, [](comm::Comm& comm) {
    const DeviceMesh a(comm, {{"x", 2}}, {0, 1});
    const DeviceMesh b(comm, {{"y", 3}}, {1, 2, 3});
    // y_i = w_i x_i, and their sum: written here for tensors that this rank may have no part of.
    const auto weigh = [](const DTensor& x, const Floats& w) {
      const auto piece_of_w = [w](const Layout& layout, const DeviceMesh& mesh) {
        return testing::piece_of(layout, *mesh.coordinate(), w);
      };
      Layout sum = Layout::replicated(x.layout().mesh(), Shape{});
      if (!x.layout().placement(0).is_replicate()) sum = sum.with(0, Partial());
      Layout grad_layout = x.layout();
      if (grad_layout.placement(0).is_partial()) grad_layout = grad_layout.with(0, Replicate());
      DTensor out;
      if (x.has_local()) {
        const Floats xs = x.local_tensor().to_vector<float>();
        const Floats ws = piece_of_w(grad_layout, x.mesh()).to_vector<float>();
        out = DTensor(Tensor::full({}, std::inner_product(xs.begin(), xs.end(), ws.begin(), 0.0)),
                      sum, x.mesh());
      } else {
        out = DTensor(x.dtype(), sum, x.mesh());
      }
      record(
          "weigh", {&x, 1}, {&out, 1},
          [=, mesh = x.mesh(), dtype = x.dtype()](std::span<const DTensor>) {
            if (!mesh.coordinate()) {
              return std::vector<DTensor>{DTensor(dtype, grad_layout, mesh)};
            }
            return std::vector<DTensor>{DTensor(piece_of_w(grad_layout, mesh), grad_layout, mesh)};
          });
      return out;
    };
    const Floats w{3, 1, 4, 1, 5};
    for (const Placement from : {Replicate(), Shard(0)}) {
      for (const Placement to : {Replicate(), Shard(0), Partial()}) {
        DTensor x = distribute(Tensor::arange(5), a, {from});
        x.set_requires_grad(true);
        ledger().clear();
        const DTensor loss = weigh(redistribute(x, b, {to}), w);
        EXPECT_TRUE(loss.requires_grad()) << "handles, too";
        DTensor whole = loss;
        if (loss.spec().has_partial()) whole = redistribute(loss, {Replicate()});
        if (b.coordinate()) {
          EXPECT_EQ(values(whole), Floats{0 + 1 + 8 + 3 + 20});
        }
        whole.backward();
        ASSERT_TRUE(x.grad().defined());
        EXPECT_EQ(x.grad().layout(), x.layout());
        EXPECT_EQ(x.grad().has_local(), a.coordinate().has_value());
        if (a.coordinate()) {
          EXPECT_EQ(values(x.grad()),
                    testing::piece_of(x.layout(), *a.coordinate(), w).to_vector<float>())
              << to_string(from) << " " << to_string(to);
        }
        const bool involved = comm.rank() < 4;
        const auto adjoints = std::ranges::count_if(ledger().entries(), [](const LedgerEntry& e) {
          return e.cause == Cause::kAdjoint && e.of == "redistribute" && e.mesh_dims.empty();
        });
        EXPECT_EQ(adjoints, involved ? 1 : 0) << to_string(ledger());
      }
    }
  });
}

TEST(CrossMesh, ListsAndAsyncMovesGoInOneCall) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh from(comm, {{"x", 2}}, {0, 1});
    const DeviceMesh to(comm, {{"x", 2}}, {2, 3});
    std::vector<DTensor> ts;
    std::vector<Layout> layouts;
    for (const Shape& shape : std::vector<Shape>{{5}, {3, 2}, {4}}) {
      ts.push_back(distribute(Tensor::arange(shape.numel()).view(shape), from, {Shard(0)}));
      layouts.emplace_back(to.layout(), shape, std::vector<Placement>{Shard(0)});
    }
    for (int pass = 0; pass < 2; ++pass) {
      const int64_t before = comm.counters().calls;
      const std::vector<DTensor> moved =
          pass == 0 ? redistribute(ts, to, layouts) : redistribute_async(ts, to, layouts).wait();
      EXPECT_EQ(comm.counters().calls - before, 1);
      for (size_t i = 0; i < ts.size(); ++i) {
        EXPECT_EQ(values(moved[i]), want(layouts[i], comm.rank()));
        EXPECT_EQ(moved[i].layout(), layouts[i]);
      }
    }
    const DTensor half = redistribute(ts[0], to, {Shard(0)}, {.wire_dtype = DType::kBFloat16});
    EXPECT_EQ(values(half), want(half.layout(), comm.rank())) << "small numbers are exact";
    EXPECT_EQ(ledger().entries().back().wire_bytes, 10);
    EXPECT_EQ(ledger().entries().back().payload_bytes, 20);
  });
}

// A tensor whose terms must be added on its mesh before they can go, and others of its shape that
// go at once: no rank may take one for the other, though a target has no part in the addition.
class CrossMeshOrder : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 4;
  struct Rank {
    DeviceMesh from;
    DeviceMesh to;
    DTensor terms;  // P: rank r's term of element i is 10 i + 100 r
    DTensor cut;    // S(0): arange

    explicit Rank(comm::Comm& comm) : from(comm, {{"x", 2}}, {0, 1}), to(comm, {{"x", 2}}, {2, 3}) {
      const Layout partial(from.layout(), {kSize}, {Partial()});
      if (from.coordinate()) {
        const Tensor term = Tensor::arange(kSize);
        for (int64_t i = 0; i < kSize; ++i) {
          term.data<float>()[i] = static_cast<float>(10 * i + 100 * comm.rank());
        }
        terms = DTensor(term, partial, from);
      } else {
        terms = DTensor(DType::kFloat32, partial, from);
      }
      cut = distribute(Tensor::arange(kSize), from, {Shard(0)});
    }
    Layout target(Placement p) const { return {to.layout(), {kSize}, {p}}; }
    void expect(const DTensor& sum, const DTensor& moved) const {
      if (!to.coordinate()) return;
      EXPECT_EQ(full(sum).to_vector<float>(), (Floats{100, 120, 140, 160}));
      EXPECT_EQ(full(moved).to_vector<float>(), (Floats{0, 1, 2, 3}));
    }
  };
};

TEST_F(CrossMeshOrder, OfAList) {
  run_ranks(4, [](comm::Comm& comm) {
    const Rank rank(comm);
    for (const Placement p : {Replicate(), Shard(0)}) {
      const std::vector<DTensor> ts{rank.terms, rank.cut};
      const std::vector<Layout> layouts{rank.target(p), rank.target(p)};
      const std::vector<DTensor> moved = redistribute(ts, rank.to, layouts);
      rank.expect(moved[0], moved[1]);
    }
  });
}

TEST_F(CrossMeshOrder, OfAMoveWithinAnAsyncOne) {
  run_ranks(4, [](comm::Comm& comm) {
    const Rank rank(comm);
    for (const Placement p : {Replicate(), Shard(0)}) {
      ledger().clear();
      Pending<DTensor> sum = redistribute_async(rank.terms, rank.to, rank.target(p));
      const DTensor moved = redistribute(rank.cut, rank.to, {p});
      rank.expect(sum.wait(), moved);
      // The same order of the same steps in all ledgers.
      ASSERT_GE(ledger().entries().size(), 3U);
      EXPECT_FALSE(ledger().entries()[0].mesh_dims.empty());
      EXPECT_TRUE(ledger().entries()[1].from.placement(0).is_shard());
      EXPECT_EQ(ledger().entries()[1].from, rank.cut.layout());
      EXPECT_TRUE(ledger().entries()[2].mesh_dims.empty());
    }
  });
}

TEST_F(CrossMeshOrder, AfterAForgottenMove) {
  run_ranks(4, [](comm::Comm& comm) {
    const Rank rank(comm);
    for (const Placement p : {Replicate(), Shard(0)}) {
      redistribute_async(rank.terms, rank.to, rank.target(p)).forget();
      const DTensor moved = redistribute(rank.cut, rank.to, {p});
      const DTensor sum = redistribute(rank.terms, rank.to, {p});
      rank.expect(sum, moved);
    }
  });
}

TEST(CrossMesh, RefusesWhatItCannotDo) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh a(comm, {{"x", 2}}, {0, 1});
    const DeviceMesh b(comm, {{"x", 2}}, {2, 3});
    const DTensor t = distribute(Tensor::arange(4), a, {Shard(0)});
    const auto refused = [](const auto& f) {
      try {
        f();
      } catch (const PlacementError& e) {
        return std::string(e.what());
      }
      return std::string();
    };
    // A layout of another mesh, without that mesh: the message shows how.
    const std::string text =
        refused([&] { static_cast<void>(redistribute(t, Layout(b.layout(), {4}, {Shard(0)}))); });
    EXPECT_NE(text.find("redistribute(t, mesh, layout)"), std::string::npos) << text;
    EXPECT_THROW(static_cast<void>(redistribute(t, b, Layout(b.layout(), {5}, {Shard(0)}))),
                 ArgumentError);
    EXPECT_NE(refused([&] { static_cast<void>(redistribute(t, b, {Shard(1)})); }), "");
    EXPECT_NE(refused([&] { static_cast<void>(redistribute(t, DeviceMesh(), {})); }), "");
    const DTensor plain(Tensor::zeros({4}));
    EXPECT_NE(refused([&] { static_cast<void>(redistribute(plain, b, {Shard(0)})); }), "");
    {
      const NoCommunication silent;
      const std::string why = refused([&] { static_cast<void>(redistribute(t, b, {Shard(0)})); });
      EXPECT_NE(why.find("between two meshes"), std::string::npos) << why;
    }
    const std::vector<int> all{0, 1, 2, 3};
    const auto other_root = comm.group(all, "another root");
    const DeviceMesh c(*other_root, {{"x", 2}}, {2, 3});
    EXPECT_NE(refused([&] { static_cast<void>(redistribute(t, c, {Shard(0)})); }), "");
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

}  // namespace
}  // namespace dtensor
