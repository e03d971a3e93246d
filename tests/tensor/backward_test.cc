// Autograd over placements: what a gradient is and what its way costs.

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/communication.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/test_ops.h"

namespace dtensor {
namespace {

using testing::exponential;
using testing::like;
using testing::plus;
using testing::recorded;
using testing::run_ranks;
using testing::scale;
using testing::total;
using testing::weighted;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

std::string placed(const DTensor& t) { return to_string(t.layout().placement(0)); }

DTensor leaf(const Floats& whole, const DeviceMesh& mesh, Placement placement) {
  const Shape shape{static_cast<int64_t>(whole.size())};
  DTensor t = distribute(Tensor::of(std::span<const float>(whole), shape), mesh, {placement});
  return t.set_requires_grad(true);
}

DTensor scalar(float value, const DeviceMesh& mesh) {
  return distribute(Tensor::full({}, value), mesh, {}).set_requires_grad(true);
}

// The only entry of the ledger.
LedgerEntry only_entry() {
  EXPECT_EQ(ledger().entries().size(), 1U) << to_string(ledger());
  return ledger().entries().empty() ? LedgerEntry{} : ledger().entries().front();
}

// Sum over the rows of a [rows, 2] matrix: P(op) where rows are cut.
DTensor over_rows(const DTensor& a, PartialOp op) {
  const Floats v = values(a);
  Floats sums{v[0], v[1]};
  const Layout to(a.layout().mesh(), {2}, {Partial(op)});
  return recorded(
      "over_rows", {a}, like(a, Tensor::of(std::span<const float>(sums), {2}), to),
      [layout = a.layout()](std::span<const DTensor> g) {
        return std::vector<DTensor>{like(g[0], g[0].local_tensor().view({1, 2}), layout)};
      },
      {.passes_partial = true});
}

// pytorch#115967: the gradient through a reduction is not divided.
TEST(Backward, ThroughAReductionIsNotDivided) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor a = distribute(Tensor::of<float>({1, 2, 3, 4}, {2, 2}), mesh, {Shard(0)});
    a.set_requires_grad(true);
    const DTensor x = over_rows(a, PartialOp::kSum);
    const DTensor y = redistribute(x, {Replicate()});
    EXPECT_EQ(values(y), (Floats{4, 6}));
    std::vector<DTensor> seen;
    for (const DTensor& t : {x, y}) {
      add_grad_hook(t, [&seen](const DTensor& g) {
        seen.push_back(g);
        return g;
      });
    }
    const DTensor loss = recorded(
        "dot", {y}, like(y, Tensor::full({}, 280), Layout::replicated(mesh.layout(), {})),
        [layout = y.layout()](std::span<const DTensor> g) {
          return std::vector<DTensor>{like(g[0], Tensor::of<float>({10, 20}, {2}), layout)};
        });
    ledger().clear();
    DTensor(loss).backward();
    ASSERT_EQ(seen.size(), 2U);
    for (const DTensor& g : seen) {
      EXPECT_EQ(values(g), (Floats{10, 20}));
      EXPECT_EQ(placed(g), "R");
    }
    EXPECT_EQ(values(a.grad()), (Floats{10, 20}));
    EXPECT_EQ(placed(a.grad()), "S(0)");
    EXPECT_TRUE(ledger().entries().empty()) << to_string(ledger());
  });
}

// pytorch#115967: no gradient through a maximum; a Partial leaf is refused where it is made.
TEST(Backward, PartialMaximaHaveNone) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor a = distribute(Tensor::of<float>({1, 2, 3, 4}, {2, 2}), mesh, {Shard(0)});
    a.set_requires_grad(true);
    const DTensor y = redistribute(over_rows(a, PartialOp::kMax), {Replicate()});
    EXPECT_EQ(values(y), (Floats{3, 4}));
    try {
      total(y).backward();
      FAIL() << "gave a gradient";
    } catch (const PlacementError& e) {
      EXPECT_NE(std::string(e.what()).find("P(max)"), std::string::npos) << e.what();
    }
    DTensor partial = zeros({2}, mesh, {Partial()});
    EXPECT_THROW(partial.set_requires_grad(true), PlacementError);
    EXPECT_FALSE(partial.requires_grad());
    DTensor whole = zeros({2}, mesh, {});
    whole.set_requires_grad(true);
    EXPECT_THROW(whole.replace(partial), PlacementError);
  });
}

// pytorch#172932, pytorch#160285: R and P gradients add up once each.
TEST(Backward, ReplicatedAndPartialGradientsJoin) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0)});
    const auto run = [&](const auto& make_loss, float want) {
      DTensor w = scalar(5, mesh);
      DTensor loss = make_loss(w);
      ledger().clear();
      loss.backward();
      EXPECT_FLOAT_EQ(values(w.grad())[0], want);
      EXPECT_EQ(placed(w.grad()), "R");
      const LedgerEntry e = only_entry();
      EXPECT_EQ(e.kind, StepKind::kAllReduce);
      EXPECT_EQ(e.payload_bytes, 8);
      EXPECT_EQ(e.cause, Cause::kAdjoint);
      return e;
    };
    const auto add_whole = [](const DTensor& p, const DTensor& r) {
      return plus(p, redistribute(r, {Partial()}));
    };
    EXPECT_EQ(run([&](const DTensor& w) { return add_whole(weighted(w, x), scale(w, 3)); }, 9).op,
              "leaf");
    EXPECT_EQ(run([&](const DTensor& w) { return weighted(scale(w, 2), x); }, 12).op, "leaf");
    const LedgerEntry before_exp =
        run([&](const DTensor& w) { return weighted(exponential(w), x); }, 890.47895F);
    EXPECT_EQ(before_exp.op, "resolve");
    EXPECT_EQ(before_exp.of, "exp");
  });
}

// pytorch#172932, torchtitan#3418: the adjoint of a gather is one reduce-scatter, of a cut one
// all-gather.
TEST(Backward, AdjointOfAGatherIsAReduceScatter) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const auto r = static_cast<float>(comm.rank() + 1);
    DTensor p = leaf({0, 0, 0, 0, 0}, mesh, Shard(0));
    const DTensor all = redistribute(p, {Replicate()});
    const DTensor mine = local(all, {.grad = GradPlacement::kPartial});
    DTensor loss =
        recorded("region", {mine}, DTensor(Tensor::full({}, 0)), [r](std::span<const DTensor>) {
          return std::vector<DTensor>{
              DTensor(Tensor::of<float>({r, 2 * r, 3 * r, 4 * r, 5 * r}, {5}))};
        });
    ledger().clear();
    loss.backward();
    const Floats want[] = {{10, 20}, {30}, {40}, {50}};
    EXPECT_EQ(values(p.grad()), want[comm.rank()]);
    const LedgerEntry e = only_entry();
    EXPECT_EQ(e.kind, StepKind::kReduceScatter);
    EXPECT_EQ(e.payload_bytes, 60);
    EXPECT_EQ(e.of, "redistribute");

    const DTensor q = leaf({1, 1, 1, 1, 1}, mesh, Replicate());
    DTensor sum = total(scale(redistribute(q, {Shard(0)}), 2));
    ledger().clear();
    sum.backward();
    EXPECT_EQ(values(q.grad()), (Floats{2, 2, 2, 2, 2}));
    EXPECT_EQ(placed(q.grad()), "R");
    EXPECT_EQ(only_entry().kind, StepKind::kAllGather);
    EXPECT_EQ(only_entry().payload_bytes, 60);
  });
}

// What the gradient of a tensor of one placement costs on its way to another: a table.
TEST(Backward, EveryAdjointHasItsCollective) {
  struct Row {
    Placement from, to;
    bool partial;  // the gradient that comes: P(sum) or R (S where `to` is)
    const char* kind;
  };
  const std::vector<Row> rows{{Shard(0), Replicate(), true, "reduce_scatter"},
                              {Shard(0), Replicate(), false, ""},
                              {Replicate(), Shard(0), false, "all_gather"},
                              {Partial(), Replicate(), false, ""},
                              {Partial(), Replicate(), true, "all_reduce"},
                              {Partial(), Shard(0), false, "all_gather"},
                              {Replicate(), Partial(), false, ""},
                              {Shard(0), Partial(), false, ""},
                              {Shard(0), Shard(1), false, "all_to_all"}};
  run_ranks(3, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const Tensor whole = Tensor::arange(12).view({3, 4});
    for (const Row& row : rows) {
      const std::string name = to_string(row.from) + " -> " + to_string(row.to);
      DTensor root = scalar(1, mesh);
      // A tensor of any placement that requires grad: made by an op.
      const DTensor source =
          recorded("source", {root}, distribute(whole, mesh, {row.from}),
                   [](std::span<const DTensor>) { return std::vector<DTensor>(1); });
      std::string came;
      add_grad_hook(source, [&](const DTensor& g) {
        came = placed(g);
        const DTensor sum = redistribute(g, {Replicate()});
        EXPECT_EQ(values(sum), whole.to_vector<float>()) << name;
        return g;
      });
      const DTensor moved = redistribute(source, {row.to});
      const Placement grad = row.partial ? Partial() : row.to.is_partial() ? Replicate() : row.to;
      DTensor loss =
          recorded("sink", {moved}, scalar(0, mesh).detach(), [&](std::span<const DTensor>) {
            return std::vector<DTensor>{distribute(whole, mesh, {grad})};
          });
      ledger().clear();
      loss.backward();
      const std::string dual = row.from.is_partial() ? "R" : to_string(row.from);
      EXPECT_EQ(came, dual) << name;
      std::string kinds;
      for (const LedgerEntry& e : ledger().entries()) {
        if (e.cause == Cause::kAdjoint) kinds += name_of(e.kind);
      }
      EXPECT_EQ(kinds, row.kind) << name;
    }
  });
}

TEST(Backward, PartialPassesOnMeshDimsThatDoNotMove) {
  // Parameter cut over dp, batch cut over dp and cp: the gradient is P on both; the gather's
  // adjoint resolves dp and lets cp pass to the leaf.
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"cp", 2}});
    DTensor p = distribute(Tensor::arange(4), mesh, {Shard(0)});
    p.set_requires_grad(true);
    const DTensor all = redistribute(p, mesh["dp"], {Replicate()});
    const DTensor mine = local(all, {.grad = GradPlacement::kPartial});
    ledger().clear();
    total(mine).backward();
    EXPECT_EQ(values(p.grad()), (Floats{4, 4}));
    ASSERT_EQ(ledger().entries().size(), 2U) << to_string(ledger());
    const LedgerEntry& first = ledger().entries()[0];
    EXPECT_EQ(first.kind, StepKind::kReduceScatter);
    EXPECT_EQ(first.mesh_dims, std::vector<int>{0});
    const LedgerEntry& second = ledger().entries()[1];
    EXPECT_EQ(second.kind, StepKind::kAllReduce);
    EXPECT_EQ(second.mesh_dims, std::vector<int>{1});
    EXPECT_EQ(second.op, "leaf");
  });
}

// Gradient accumulation: Partial gradients stay on the leaf, and are reduced once.
TEST(Backward, DeferredGradientsAreReducedOnce) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3, 4}, {4}), mesh, {Shard(0)});
    DTensor w = scalar(5, mesh);
    const auto loss = [&] { return weighted(w, x); };
    ledger().clear();
    loss().backward({.defer = true});
    EXPECT_EQ(placed(w.grad()), "P(sum)");
    loss().backward({.defer = true});
    EXPECT_TRUE(ledger().entries().empty());
    loss().backward();
    EXPECT_EQ(placed(w.grad()), "R");
    EXPECT_EQ(values(w.grad())[0], 30);
    EXPECT_EQ(only_entry().payload_bytes, 16);
    // A resolved gradient is not reduced again: the next deferred part joins it at coordinate 0.
    loss().backward({.defer = true});
    EXPECT_EQ(placed(w.grad()), "P(sum)");
    loss().backward();
    EXPECT_EQ(values(w.grad())[0], 50);
    // pytorch#172932: a second backward without zeroing adds once.
    loss().backward();
    EXPECT_EQ(values(w.grad())[0], 60);
    EXPECT_EQ(ledger().entries().size(), 3U);
  });
}

// Two passes gave 10 each, and the second failed: what the first left is not lost, nor counted
// twice.
TEST(Backward, ADeferredGradientOutlivesAPassThatThrows) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3, 4}, {4}), mesh, {Shard(0)});
    DTensor w = scalar(5, mesh);
    weighted(w, x).backward({.defer = true});
    {
      const NoCommunication none;
      DTensor loss = weighted(w, x);
      EXPECT_THROW(loss.backward(), PlacementError);  // its reduction could not start
    }
    ASSERT_TRUE(w.grad().defined());
    EXPECT_EQ(placed(w.grad()), "P(sum)");
    weighted(w, x).backward();
    EXPECT_EQ(values(w.grad())[0], 30);

    // The leaf is done and its reduction under way when an earlier node throws.
    w.set_grad({});
    weighted(w, x).backward({.defer = true});
    DTensor v = scalar(1, mesh);
    const DTensor fails =
        recorded("fails", {v}, v.detach(), [](std::span<const DTensor>) -> std::vector<DTensor> {
          throw std::runtime_error("from fails");
        });
    DTensor loss = plus(weighted(fails, x), weighted(w, x));
    EXPECT_THROW(loss.backward(), std::runtime_error);
    ASSERT_TRUE(w.grad().defined());
    EXPECT_EQ(placed(w.grad()), "R");
    EXPECT_EQ(values(w.grad())[0], 20);
    EXPECT_FALSE(v.grad().defined());
    weighted(w, x).backward();
    EXPECT_EQ(values(w.grad())[0], 30);
  });
}

TEST(Backward, OfACutLeafTakesNoMessage) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const DTensor w = leaf({1, 2, 3, 4, 5}, mesh, Shard(0));
    DTensor loss = total(scale(w, 2));
    EXPECT_EQ(placed(loss), "P(sum)");
    ledger().clear();
    loss.backward();
    EXPECT_EQ(values(w.grad()), Floats(w.local_tensor().to_vector<float>().size(), 2.0F));
    EXPECT_EQ(placed(w.grad()), "S(0)");
    EXPECT_TRUE(ledger().entries().empty());
    // The resolved loss gives the same.
    DTensor v = leaf({1, 2, 3, 4, 5}, mesh, Shard(0));
    redistribute(total(scale(v, 2)), {Replicate()}).backward();
    EXPECT_EQ(values(v.grad()), values(w.grad()));
  });
}

// pytorch#169381, hyper-parallel#428: a Partial gradient on mesh dims of size 1 costs nothing.
TEST(Backward, SizeOneMeshDimsCostNothing) {
  run_ranks(1, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 1}, {"b", 1}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0), Shard(0)});
    DTensor w = scalar(5, mesh);
    weighted(exponential(w), x).backward();
    EXPECT_FLOAT_EQ(values(w.grad())[0], 890.47895F);
    EXPECT_EQ(placed(w.grad()), "R");
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(Backward, TheSameBitsOnEveryRank) {
  run_ranks(7, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 7}});
    const DTensor x = randn({50}, mesh, {Shard(0)}, {.seed = 3, .stream = "x"});
    DTensor w = scalar(1.5F, mesh);
    weighted(exponential(w), x).backward();
    const DTensor first = distribute(full(w.grad()), mesh, {Partial(PartialOp::kMin)});
    const DTensor last = distribute(full(w.grad()), mesh, {Partial(PartialOp::kMax)});
    EXPECT_EQ(values(redistribute(first, {Replicate()})),
              values(redistribute(last, {Replicate()})));
  });
}

TEST(Backward, HooksOfALeafSeeItsGradientBeforeTheReduction) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0)});
    DTensor w = scalar(5, mesh);
    std::string seen;
    add_grad_hook(w, [&](const DTensor& g) {
      seen = placed(g);
      return scale(g, 10);
    });
    weighted(w, x).backward();
    EXPECT_EQ(seen, "P(sum)");
    EXPECT_EQ(values(w.grad())[0], 60);
  });
}

TEST(Backward, OutsideTheMeshNothingMoves) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {2, 0});
    DTensor w = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Replicate()});
    w.set_requires_grad(true);
    const DTensor cut = redistribute(w, {Shard(0)});
    EXPECT_TRUE(cut.requires_grad());
    EXPECT_EQ(cut.has_local(), comm.rank() != 1);
  });
}

// Of a mesh dim of one rank, where P(sum) is R without a move.
TEST(Backward, ALeafsGradientIsItsOwnMemoryOnOneRank) {
  run_ranks(1, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 1}});
    const DTensor x = distribute(Tensor::of<float>({1, 2, 3}, {3}), mesh, {Shard(0)});
    DTensor w = scalar(5, mesh);
    DTensor kept;
    add_grad_hook(w, [&](const DTensor& g) {
      kept = g;
      return g;
    });
    weighted(w, x).backward();
    EXPECT_EQ(placed(kept), "P(sum)");
    EXPECT_NE(w.grad().local_tensor().storage(), kept.local_tensor().storage());
    EXPECT_EQ(values(w.grad())[0], 6);
  });
}

}  // namespace
}  // namespace dtensor
