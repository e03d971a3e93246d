#include "dtensor/tensor/local.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tensor/redistribute.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/test_ops.h"

namespace dtensor {
namespace {

using testing::recorded;
using testing::run_ranks;
using testing::scale;
using testing::total;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

// x w summed over the rows of x, on pieces: the gradient of w is the sum of x's rows.
DTensor rows_times(const DTensor& x, const DTensor& w) {
  const Floats rows = values(x);
  Floats sums{0, 0};
  for (size_t i = 0; i < rows.size(); ++i) sums[i % 2] += rows[i];
  return recorded(
      "rows_times", {w}, DTensor(Tensor::full({}, 0)), [sums](std::span<const DTensor>) {
        return std::vector<DTensor>{DTensor(Tensor::of(std::span<const float>(sums), {2}))};
      });
}

// pytorch#172932, pytorch#173454, torchtitan#1805: the gradient of a replicated tensor's copy.
TEST(Local, AGradientStatedPartialIsReducedOnce) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor x = distribute(Tensor::of<float>({1, 1, 2, 0, 0, 3}, {3, 2}), mesh, {Shard(0)});
    DTensor w = distribute(Tensor::of<float>({2, 3}, {2}), mesh, {});
    w.set_requires_grad(true);

    ledger().clear();
    rows_times(local(x), local(w, {.grad = GradPlacement::kPartial})).backward();
    EXPECT_EQ(values(w.grad()), (Floats{3, 4}));
    ASSERT_EQ(ledger().entries().size(), 1U);
    EXPECT_EQ(ledger().entries()[0].kind, StepKind::kAllReduce);
    EXPECT_EQ(ledger().entries()[0].payload_bytes, 16);

    // Every rank computes the same: right as it is.
    w.set_grad({});
    ledger().clear();
    rows_times(DTensor(Tensor::of<float>({3, 4}, {1, 2})),
               local(w, {.grad = GradPlacement::kReplicated}))
        .backward();
    EXPECT_EQ(values(w.grad()), (Floats{3, 4}));
    EXPECT_TRUE(ledger().entries().empty());

    try {
      static_cast<void>(local(w));
      FAIL() << "guessed";
    } catch (const PlacementError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("kPartial"), std::string::npos) << text;
      EXPECT_NE(text.find("kReplicated"), std::string::npos) << text;
    }
    EXPECT_THROW(static_cast<void>(from_local(DTensor(Tensor::zeros({2})).set_requires_grad(true),
                                              mesh, w.layout())),
                 PlacementError);
    const NoGrad no_grad;  // nothing to state where no gradient is recorded
    EXPECT_EQ(values(local(w)), (Floats{2, 3}));
  });
}

// torchtitan#2532, torchtitan#3412: a Partial one crosses the border as it is.
TEST(Local, APartialTensorTakenApartAndWrappedAgainHasTheSameGradient) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const auto run = [&](bool apart) {
      DTensor a = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0)});
      a.set_requires_grad(true);
      DTensor s = total(a);
      if (apart) s = from_local(local(s), mesh, s.layout());
      EXPECT_EQ(to_string(s.layout().placement(0)), "P(sum)");
      const DTensor y = redistribute(s, {Replicate()});
      EXPECT_EQ(values(y), Floats{6});
      scale(y, 5).backward();
      EXPECT_EQ(to_string(a.grad().layout().placement(0)), "S(0)");
      return values(a.grad());
    };
    EXPECT_EQ(run(true), run(false));
    EXPECT_EQ(run(true), comm.rank() == 0 ? (Floats{5, 5}) : Floats{5});
  });
}

TEST(Local, CutPiecesAndTheirGradientsCrossAsTheyAre) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    DTensor a = distribute(Tensor::arange(5), mesh, {Shard(0)});
    a.set_requires_grad(true);
    const DTensor piece = local(a);
    EXPECT_FALSE(piece.mesh().defined());
    EXPECT_EQ(piece.local_tensor().storage(), a.local_tensor().storage());
    const DTensor back =
        from_local(scale(piece, static_cast<float>(comm.rank() + 1)), mesh, a.layout());
    ledger().clear();
    total(back).backward();
    EXPECT_EQ(values(a.grad()), Floats(values(a).size(), static_cast<float>(comm.rank() + 1)));
    EXPECT_TRUE(ledger().entries().empty());
  });
}

TEST(Local, FromLocalOfAReplicatedTensorGivesBackWhatWasStated) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Layout whole = Layout::replicated(mesh.layout(), {3});
    const auto gradient = [&](GradPlacement stated) {
      DTensor piece(Tensor::of<float>({1, 2, 3}, {3}));
      piece.set_requires_grad(true);
      const DTensor t = from_local(piece, mesh, whole, {.grad = stated});
      total(scale(redistribute(t, {Shard(0)}), 4)).backward();
      return values(piece.grad());
    };
    EXPECT_EQ(gradient(GradPlacement::kReplicated), (Floats{4, 4, 4}));
    // Parts whose sum is the gradient.
    const Floats part = gradient(GradPlacement::kPartial);
    const DTensor sum(Tensor::of(std::span<const float>(part), {3}),
                      Layout(mesh.layout(), {3}, {Partial()}), mesh);
    EXPECT_EQ(values(redistribute(sum, {Replicate()})), (Floats{4, 4, 4}));
  });
}

TEST(Replicate, GivesTheWholeGradientBack) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor plain(Tensor::of<float>({1, 2, 3}, {3}));
    plain.set_requires_grad(true);
    const DTensor t = replicate(plain, mesh);
    EXPECT_EQ(t.local_tensor().storage(), plain.local_tensor().storage());
    total(scale(redistribute(t, {Shard(0)}), 4)).backward();
    EXPECT_EQ(values(plain.grad()), (Floats{4, 4, 4}));
    EXPECT_FALSE(plain.grad().mesh().defined());
  });
}

// pytorch#110762, pytorch#172812, torchtitan#4593: the global shape is given, never inferred.
TEST(FromLocal, ChecksThisRanksShapeWithoutAMessage) {
  const auto found = [](int rows, int columns, const Layout& layout, const DeviceMesh& mesh) {
    try {
      static_cast<void>(from_local(DTensor(Tensor::zeros({rows, columns})), mesh, layout));
      return std::string();
    } catch (const ArgumentError& e) {
      return std::string(e.what());
    }
  };
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const auto r = static_cast<size_t>(comm.rank());
    const Layout rows(mesh.layout(), {10, 2}, {Shard(0)});
    const int wrong[] = {3, 3, 3, 1};
    const int right[] = {3, 2, 3, 2};
    const std::string text = found(wrong[r], 2, rows, mesh);
    EXPECT_EQ(text.empty(), r == 0 || r == 2) << text;
    if (r == 1) {
      EXPECT_NE(text.find("[3,2]"), std::string::npos) << text;
      EXPECT_NE(text.find("[2,2]"), std::string::npos) << text;
    }
    EXPECT_EQ(found(right[r], 2, rows, mesh), "");
    const Layout columns(mesh.layout(), {2, 14}, {Shard(1)});
    const int wide[] = {2, 3, 4, 5};
    EXPECT_EQ(found(2, wide[r], columns, mesh).empty(), r == 1 || r == 2);
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

// pytorch#110762, pytorch#172812: an exchange only where it is asked for by name.
TEST(FromLocal, AgreesOnTheShapeWhereAsked) {
  run_ranks(6, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 3, {1, 0, 2}}}, {5, 3, 1, 0, 2, 4});
    const std::vector<std::vector<Placement>> all{{Shard(0), Shard(1)},    {Shard(0), Shard(0)},
                                                  {Replicate(), Shard(1)}, {Shard(1)},
                                                  {Partial(), Shard(0)},   {}};
    for (const auto& placements : all) {
      const Layout layout(mesh.layout(), {7, 5}, placements);
      const DTensor piece(Tensor::zeros(layout.local_shape(*mesh.coordinate())));
      ledger().clear();
      const DTensor t = from_local(piece, mesh, placements, {.shape = kAgree});
      EXPECT_EQ(t.layout(), layout) << to_string(layout);
      ASSERT_EQ(ledger().entries().size(), 1U);
      EXPECT_EQ(ledger().entries()[0].op, "from_local");
      EXPECT_EQ(ledger().payload_bytes(), 5 * 6 * 80);
      const int64_t calls = comm.counters().calls;
      EXPECT_EQ(from_local(piece, mesh, placements, {.shape = {7, 5}}).layout(), layout);
      EXPECT_EQ(comm.counters().calls, calls) << "a given shape needs no message";
    }
    const DTensor scalar(Tensor::zeros({}));
    EXPECT_EQ(from_local(scalar, mesh, {Partial()}, {.shape = kAgree}).shape(), Shape{});
    EXPECT_THROW(static_cast<void>(from_local(scalar, mesh, {Partial()}, {})), ArgumentError);
  });
}

TEST(FromLocal, TellsTheRightSizesOnEveryRankWhereTheyDoNotAgree) {
  const auto found = [](const Tensor& piece, const DeviceMesh& mesh, Placement p) {
    try {
      static_cast<void>(from_local(DTensor(piece), mesh, {p}, {.shape = kAgree}));
    } catch (const ArgumentError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  std::vector<std::vector<std::string>> texts(4);
  run_ranks(5, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    if (comm.rank() == 4) {
      const std::string text = found(Tensor::zeros({3, 2}), mesh, Shard(0));
      EXPECT_NE(text.find("outside"), std::string::npos) << text;
      return;
    }
    const auto r = static_cast<size_t>(comm.rank());
    const int rows[] = {3, 3, 3, 1};  // 10 rows are 3, 2, 3, 2
    texts[r].push_back(found(Tensor::zeros({rows[r], 2}), mesh, Shard(0)));
    texts[r].push_back(found(Tensor::zeros({rows[r], 2}), mesh, Replicate()));
    texts[r].push_back(found(Tensor::zeros(r == 2 ? Shape{4} : Shape{2, 2}), mesh, Replicate()));
    texts[r].push_back(
        found(Tensor::zeros({2}, r == 2 ? DType::kInt32 : DType::kFloat32), mesh, Replicate()));
    // The Comm is as it was.
    EXPECT_EQ(found(Tensor::zeros({2}), mesh, Shard(0)), "");
  });
  for (size_t r = 1; r < 4; ++r) EXPECT_EQ(texts[r], texts[0]);
  const std::string& text = texts[0][0];
  for (const char* part : {"[10,2]", "rank 1 needs [2,2] and has [3,2]",
                           "rank 3 needs [2,2] and has [1,2]", "[x:S(0)]"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("rank 0"), std::string::npos) << text;
  for (const std::string& t : texts[0]) EXPECT_NE(t, "");
}

TEST(FullTensor, GivesTheWholeValueWithItsGradient) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    DTensor t = distribute(Tensor::arange(5), mesh, {Shard(0)});
    t.set_requires_grad(true);
    EXPECT_THROW(static_cast<void>(full_tensor(t)), PlacementError) << "nothing is guessed";
    const auto gradient = [&](GradPlacement stated) {
      t.set_grad({});
      const DTensor whole = full_tensor(t, {.grad = stated});
      EXPECT_FALSE(whole.mesh().defined());
      EXPECT_EQ(values(whole), (Floats{0, 1, 2, 3, 4}));
      const float factor = stated == GradPlacement::kPartial ? float(comm.rank()) : 4.0F;
      total(scale(whole, factor)).backward();
      return values(t.grad());
    };
    const Floats same(static_cast<size_t>(t.local_tensor().numel()), 4.0F);
    const Floats sum(static_cast<size_t>(t.local_tensor().numel()), 0.0F + 1 + 2);
    EXPECT_EQ(gradient(GradPlacement::kReplicated), same);
    ledger().clear();
    EXPECT_EQ(gradient(GradPlacement::kPartial), sum);
    ASSERT_EQ(ledger().entries().size(), 2U);
    EXPECT_EQ(ledger().entries()[0].op, "full_tensor");
    EXPECT_EQ(ledger().entries()[1].kind, StepKind::kReduceScatter);
    EXPECT_EQ(ledger().entries()[1].of, "full_tensor");
  });
}

TEST(FromLocal, RefusesATensorThatIsOnAMesh) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor t = zeros({4}, mesh, {});
    EXPECT_THROW(static_cast<void>(from_local(t, mesh, t.layout())), ArgumentError);
    const DeviceMesh other(comm, {{"y", 2}});
    EXPECT_THROW(static_cast<void>(DTensor(Tensor::zeros({4}), t.layout(), other)), ArgumentError);
  });
}

// pytorch#144054, pytorch#152406, AReaL#312: a number is the same on every rank.
TEST(Item, IsTheValueOnEveryRank) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor sum(Tensor::full({}, comm.rank() == 0 ? 3 : 4),
                      Layout(mesh.layout(), {}, {Partial()}), mesh);
    EXPECT_EQ(sum.item(), 7);
    ASSERT_EQ(ledger().entries().size(), 1U);
    EXPECT_EQ(ledger().entries()[0].op, "item");
    EXPECT_EQ(ledger().entries()[0].cause, Cause::kExplicit);
    const std::string text = to_string(sum);
    EXPECT_NE(text.find("P(sum)"), std::string::npos) << text;
    EXPECT_EQ(text.find(comm.rank() == 0 ? '3' : '4', 5), std::string::npos)
        << "shows this rank's part as the value: " << text;
    // One element, held by one of the ranks.
    EXPECT_EQ(distribute(Tensor::full({1}, 9), mesh, {Shard(0)}).item(), 9);
    ledger().clear();
    EXPECT_EQ(distribute(Tensor::full({1}, 9), mesh, {}).item(), 9);
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_THROW(static_cast<void>(zeros({2}, mesh, {}).item()), ArgumentError);
  });
}

// pytorch#166638, pytorch#99014: the same answer everywhere, also where a part is equal or empty.
TEST(Equal, IsTheSameOnEveryRank) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const auto cut = [&](const Floats& v) {
      return distribute(Tensor::of(std::span<const float>(v), {2}), mesh, {Shard(0)});
    };
    const auto whole = [&](const Floats& v) {
      return distribute(Tensor::of(std::span<const float>(v), {2}), mesh, {});
    };
    EXPECT_FALSE(equal(cut({1, 2}), cut({1, 3})));
    EXPECT_FALSE(equal(cut({1, 2}), cut({0, 2})));
    EXPECT_TRUE(equal(cut({1, 2}), cut({1, 2})));
    EXPECT_TRUE(equal(cut({1, 2}), whole({1, 2})));
    EXPECT_FALSE(equal(whole({1, 2}), cut({1, 3})));
    const DTensor partial = redistribute(whole({1, 2}), {Partial()});
    EXPECT_TRUE(equal(partial, cut({1, 2})));
    EXPECT_FALSE(equal(whole({1, 3}), partial));
    EXPECT_FALSE(equal(whole({0, 2}), whole({-0.0F, 2}))) << "bit for bit";
    const float nan = std::bit_cast<float>(0x7fc00001U);
    EXPECT_TRUE(equal(whole({nan, 2}), whole({nan, 2})));
    // pytorch#169361
    EXPECT_FALSE(equal(zeros({5}, mesh, {Shard(0)}), zeros({}, mesh, {})));
    EXPECT_FALSE(equal(zeros({2}, mesh, {}), zeros({2}, mesh, {}, {.dtype = DType::kInt32})));
    const int64_t calls = comm.counters().calls;
    EXPECT_TRUE(equal(whole({1, 2}), whole({1, 2})));
    EXPECT_EQ(comm.counters().calls, calls) << "replicas need no collective";
    EXPECT_THROW(static_cast<void>(equal(whole({1, 2}), DTensor(Tensor::zeros({2})))),
                 PlacementError);
    EXPECT_TRUE(equal(DTensor(Tensor::zeros({2})), DTensor(Tensor::zeros({2}))));
  });
}

TEST(Equal, ComparesTensorsCutInTwoWays) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const Tensor t = Tensor::arange(35).view({5, 7});
    Tensor other = t.clone();
    other.data<float>()[33] = -1;
    const DTensor a = distribute(t, mesh, {Shard(0), Shard(1)});
    EXPECT_TRUE(equal(a, distribute(t, mesh, {Shard(1), Partial()})));
    EXPECT_FALSE(equal(a, distribute(other, mesh, {Shard(1), Partial()})));
    EXPECT_FALSE(equal(distribute(other, mesh, {Replicate(), Shard(0)}), a));
  });
}

TEST(Full, GivesTheWholeValueOnEveryRank) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const Tensor t = Tensor::arange(10).view({5, 2});
    for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial()}) {
      EXPECT_EQ(full(distribute(t, mesh, {p})).to_vector<float>(), t.to_vector<float>());
    }
    EXPECT_EQ(full(DTensor(t)).storage(), t.storage());
    const DeviceMesh two(comm, {{"x", 2}});
    const DTensor outside = zeros({4}, two, {Shard(0)});
    if (comm.rank() == 2) {
      EXPECT_THROW(static_cast<void>(full(outside)), ArgumentError);
    }
  });
}

// What is behind the piece moves between two meshes: each rank is outside one of them.
TEST(FromLocal, OutsideTheMeshTakesPartInBackward) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh a(comm, {{"x", 1}}, {0});
    const DeviceMesh b(comm, {{"x", 1}}, {1});
    DTensor piece(Tensor::of<float>({2, 3}, {2}));
    piece.set_requires_grad(true);
    const DTensor y = from_local(piece, a, Layout::replicated(a.layout(), {2}));
    EXPECT_TRUE(y.requires_grad());
    const DTensor moved = redistribute(y, b, {Replicate()});
    EXPECT_TRUE(moved.requires_grad());
    // total() and scale() of tests need a piece: rank 0 has none of what was moved.
    const DTensor loss = recorded(
        "first", {moved},
        moved.has_local() ? DTensor(Tensor::full({}, 7.0 * values(moved)[0]),
                                    Layout::replicated(b.layout(), {}), b)
                          : DTensor(DType::kFloat32, Layout::replicated(b.layout(), {}), b),
        [&](std::span<const DTensor> g) {
          const Layout layout = Layout::replicated(b.layout(), {2});
          return std::vector<DTensor>{g[0].has_local()
                                          ? DTensor(Tensor::of<float>({7, 0}, {2}), layout, b)
                                          : DTensor(DType::kFloat32, layout, b)};
        });
    DTensor(loss).backward();
    EXPECT_EQ(values(piece.grad()), (comm.rank() == 0 ? Floats{7, 0} : Floats{0, 0}));
  });
}

}  // namespace
}  // namespace dtensor
