#include "dtensor/tensor/move.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/allocator.h"
#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/comm/comm_error.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/local.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::piece_of;
using testing::run_ranks;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

MoveItem item_of(const DTensor& t, const Layout& to) {
  return {.local = t.local_tensor(), .from = t.layout(), .to = to};
}

Layout whole(const DTensor& t) { return Layout::replicated(t.layout().mesh(), t.shape()); }

std::vector<Tensor> move_all(const DeviceMesh& mesh, std::vector<MoveItem> items) {
  return Move::start(mesh, std::move(items), {}).finish();
}

TEST(Move, AGroupOfParametersIsGatheredInOneCall) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const Tensor a = Tensor::arange(10).view({5, 2});
    const Tensor b = Tensor::arange(3).to(DType::kBFloat16);
    const Tensor c = Tensor::arange(28, DType::kInt64).view({4, 7});
    std::vector<MoveItem> items;
    for (const Tensor& t : {a, b, c}) {
      const DTensor cut = distribute(t, mesh, {Shard(t.ndim() > 1 && t.size(1) == 7 ? 1 : 0)});
      items.push_back(item_of(cut, whole(cut)));
      items.back().label = "p" + std::to_string(items.size());
    }
    const std::vector<Tensor> got = move_all(mesh, items);
    EXPECT_EQ(comm.counters().calls, 1);
    EXPECT_EQ(got[0].to_vector<float>(), a.to_vector<float>());
    EXPECT_EQ(got[1].to_vector<BFloat16>(), b.to_vector<BFloat16>());
    EXPECT_EQ(got[2].to_vector<int64_t>(), c.to_vector<int64_t>()) << "columns are unpacked";
    ASSERT_EQ(ledger().entries().size(), 3U);
    const LedgerEntry& last = ledger().entries()[2];
    EXPECT_EQ(last.kind, StepKind::kAllGather);
    EXPECT_EQ(last.mesh_dims, std::vector<int>{0});
    EXPECT_EQ(last.payload_bytes, 3 * 28 * 8);
    EXPECT_EQ(last.label, "p3");
    EXPECT_EQ(last.call, ledger().entries()[0].call);
    EXPECT_EQ(to_string(last.from.placement(0)), "S(1)");
    EXPECT_EQ(to_string(last.to.placement(0)), "R");
    EXPECT_EQ(ledger().payload_bytes(), 3 * (40 + 6 + 28 * 8));
  });
}

TEST(Move, AGroupOfGradientsIsScatteredInOneCall) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    std::vector<MoveItem> items;
    std::vector<std::pair<Layout, Floats>> want;
    for (const Shape& shape : std::vector<Shape>{{7}, {2, 5}, {1}}) {
      const Floats all = Tensor::arange(shape.numel()).to_vector<float>();
      const Layout from(mesh.layout(), shape, {Partial()});
      const Layout to = from.with(0, Shard(shape.ndim() - 1));
      items.push_back({piece_of(from, *mesh.coordinate(), all), from, to});
      want.emplace_back(to, all);
    }
    const std::vector<Tensor> got = move_all(mesh, items);
    EXPECT_EQ(comm.counters().calls, 1);
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor piece = piece_of(want[i].first, *mesh.coordinate(), want[i].second);
      EXPECT_EQ(got[i].to_vector<float>(), piece.to_vector<float>());
      EXPECT_EQ(got[i].shape(), piece.shape());
    }
  });
}

TEST(Move, ItemsOfOtherPlansMoveInCallsOfTheirOwn) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const Tensor t = Tensor::arange(20).view({5, 4});
    const std::vector<DTensor> sources{
        distribute(t, mesh, {Shard(0), Replicate()}),  distribute(t, mesh, {Replicate(), Shard(1)}),
        distribute(t, mesh, {Shard(1), Replicate()}),  distribute(t, mesh, {Shard(0), Shard(1)}),
        distribute(t, mesh, {Partial(), Replicate()}), distribute(t, mesh, {})};
    std::vector<MoveItem> items;
    for (const DTensor& s : sources) items.push_back(item_of(s, whole(s)));
    const std::vector<Tensor> got = move_all(mesh, items);
    for (const Tensor& g : got) EXPECT_EQ(g.to_vector<float>(), t.to_vector<float>());
    // dp twice, tp, both, all-reduce; the replicated one stays.
    EXPECT_EQ(comm.counters().calls, 4);
    EXPECT_EQ(got[5].storage(), sources[5].local_tensor().storage());
    EXPECT_EQ(ledger().entries()[0].call, ledger().entries()[1].call);
    EXPECT_NE(ledger().entries()[1].call, ledger().entries()[2].call);
  });
}

TEST(Move, SeveralStepsOfAListAreOneCallEach) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    std::vector<MoveItem> items;
    std::vector<std::pair<Layout, Floats>> want;
    int64_t steps = 0;
    for (const Shape& shape : std::vector<Shape>{{8, 4}, {6, 2}}) {
      const Floats all = Tensor::arange(shape.numel()).to_vector<float>();
      const Layout from(mesh.layout(), shape, {Partial(), Shard(0)});
      const Layout to(mesh.layout(), shape, {Replicate(), Shard(1)});
      items.push_back({piece_of(from, *mesh.coordinate(), all), from, to});
      want.emplace_back(to, all);
      steps = 0;
      const ReshardPlan made = plan(from, to);
      for (const ReshardStep& s : made.steps()) steps += s.kind != StepKind::kLocal;
    }
    EXPECT_GT(steps, 1) << "the plan changed: take another one for this test";
    const std::vector<Tensor> got = move_all(mesh, items);
    int64_t reductions = 0;
    for (const LedgerEntry& e : ledger().entries()) reductions += e.kind == StepKind::kAllReduce;
    // Two all-reduces are two calls.
    EXPECT_EQ(comm.counters().calls, steps + (reductions > 0 ? 1 : 0));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].to_vector<float>(),
                piece_of(want[i].first, *mesh.coordinate(), want[i].second).to_vector<float>());
    }
  });
}

TEST(Move, AListIsAllReducedInTwoCallsWithTheBitsOfEach) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    std::vector<MoveItem> items;
    std::vector<Tensor> want;
    for (const auto& [shape, dtype] :
         std::vector<std::pair<Shape, DType>>{{{5, 3}, DType::kFloat32},
                                              {{2}, DType::kBFloat16},
                                              {{}, DType::kFloat32},
                                              {{0, 4}, DType::kFloat32},
                                              {{70, 100}, DType::kFloat64}}) {
      // Numbers whose sum depends on the order.
      const Tensor part = Tensor::empty(shape);
      for (int64_t i = 0; i < part.numel(); ++i) {
        part.data<float>()[i] = 1.0F / static_cast<float>(3 + i % 97 + 7 * comm.rank());
      }
      const Layout from(mesh.layout(), shape, {Partial()});
      items.push_back({part.to(dtype), from, Layout::replicated(mesh.layout(), shape)});
      want.push_back(move_local(mesh, items.back(), {}));
    }
    ledger().clear();
    const comm::Counters before = comm.counters();
    const std::vector<Tensor> got = move_all(mesh, items);
    EXPECT_EQ(comm.counters().calls - before.calls, 2);
    ASSERT_EQ(ledger().entries().size(), 4U) << "one has no elements";
    const int64_t call = ledger().entries()[0].call;
    for (const LedgerEntry& e : ledger().entries()) {
      EXPECT_EQ(e.call, call);
      EXPECT_EQ(e.calls, 2);
    }
    EXPECT_EQ(ledger().next_call(), call + 2) << "both have a number";
    ASSERT_EQ(sums(ledger()).size(), 1U);
    EXPECT_EQ(sums(ledger())[0].calls, 2);
    int64_t sent = comm.counters().payload_bytes_sent - before.payload_bytes_sent;
    const comm::Buffer all{&sent, 1, DType::kInt64};
    comm.all_reduce(all, all, comm::ReduceOp::kSum).wait();
    EXPECT_EQ(ledger().payload_bytes(), sent);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].shape(), want[i].shape());
      EXPECT_EQ(got[i].to(DType::kFloat64).to_vector<double>(),
                want[i].to(DType::kFloat64).to_vector<double>())
          << i;
    }
  });
}

TEST(Move, WritesIntoGivenMemoryWithoutANewVersion) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Tensor t = Tensor::arange(6).view({3, 2});
    for (const Placement p : {Shard(0), Shard(1), Partial(), Replicate()}) {
      const DTensor source = distribute(t, mesh, {p});
      const Tensor memory = Tensor::zeros({3, 2});
      const uint64_t version = memory.storage()->version();
      MoveItem item = item_of(source, whole(source));
      item.into = memory;
      const Tensor got = move_local(mesh, item, {});
      EXPECT_EQ(got.storage(), memory.storage());
      EXPECT_EQ(memory.to_vector<float>(), t.to_vector<float>()) << to_string(p);
      EXPECT_EQ(memory.storage()->version(), version);
    }
  });
}

// Also into other views of the memory of an input that stays.
TEST(Move, WritesIntoOtherViewsOfItsInput) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Layout layout = Layout::replicated(mesh.layout(), {2, 3});
    const auto moved = [&](const Tensor& local, const Tensor& into) {
      const uint64_t version = into.storage()->version();
      const Tensor got =
          move_local(mesh, {.local = local, .from = layout, .to = layout, .into = into}, {});
      EXPECT_EQ(got.raw(), into.raw());
      EXPECT_EQ(into.storage()->version(), version);
      return got.to_vector<float>();
    };
    const Tensor rows = Tensor::arange(12).view({4, 3});
    const Tensor last = rows.narrow(0, 2, 2);
    EXPECT_EQ(moved(last, rows.narrow(0, 0, 2)), (Floats{6, 7, 8, 9, 10, 11})) << "apart";
    EXPECT_EQ(moved(last, rows.narrow(0, 1, 2)), (Floats{6, 7, 8, 9, 10, 11})) << "overlapping";
    EXPECT_EQ(moved(last, last), (Floats{9, 10, 11, 9, 10, 11}))
        << "the same: now as above left it";
    const Tensor square = Tensor::arange(6).view({3, 2});
    EXPECT_EQ(moved(square.transpose(0, 1), square.view({2, 3})), (Floats{0, 2, 4, 1, 3, 5}));
  });
}

TEST(Move, AliasesItsInputWhereNothingMoves) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor r = distribute(Tensor::arange(4), mesh, {});
    const Layout min = whole(r).with(0, Partial(PartialOp::kMin));
    EXPECT_EQ(move_local(mesh, item_of(r, min), {}).storage(), r.local_tensor().storage());
    const Tensor kept = move_local(mesh, item_of(r, whole(r).with(0, Partial())), {});
    EXPECT_EQ(kept.storage() == r.local_tensor().storage(), comm.rank() == 0);
    // A slice has memory of its own, so that the whole can go.
    const Tensor half = move_local(mesh, item_of(r, whole(r).with(0, Shard(0))), {});
    EXPECT_NE(half.storage(), r.local_tensor().storage());
    EXPECT_EQ(half.storage()->size_bytes(), 8);
    EXPECT_TRUE(ledger().entries().empty());
  });
}

TEST(Move, PacksNothingWherePiecesFollowEachOther) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const Layout whole_layout = Layout::replicated(mesh.layout(), {5, 4});
    const auto allocations = [&](Placement from, Placement to) {
      const DTensor t = distribute(Tensor::arange(20).view({5, 4}), mesh, {from});
      const auto allocator = Context::current().slot<CurrentAllocator>().allocator;
      const int64_t before = allocator->stats().allocations;
      static_cast<void>(move_local(mesh, item_of(t, whole_layout.with(0, to)), {}));
      return allocator->stats().allocations - before;
    };
    EXPECT_EQ(allocations(Shard(0), Replicate()), 1) << "the result";
    EXPECT_EQ(allocations(Partial(), Shard(0)), 1);
    EXPECT_EQ(allocations(Partial(), Replicate()), 1);
    EXPECT_EQ(allocations(Shard(1), Replicate()), 2) << "columns arrive apart";
  });
}

TEST(Move, StartsWithoutWaitingAndEndsLater) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const Tensor t = Tensor::arange(6);
    // Rank 1 starts only after it met rank 0, which has started before: a start that waited would
    // hang here.
    const DTensor a = distribute(t, mesh, {Shard(0)});
    const DTensor b = distribute(t, mesh, {Partial()});
    if (comm.rank() == 1) comm.barrier().wait();
    Move first = Move::start(mesh, {item_of(a, whole(a))}, {});
    Move second = Move::start(mesh, {item_of(b, whole(b))}, {});
    if (comm.rank() == 0) comm.barrier().wait();
    EXPECT_EQ(second.finish()[0].to_vector<float>(), t.to_vector<float>());
    EXPECT_EQ(first.finish()[0].to_vector<float>(), t.to_vector<float>());
    EXPECT_THROW(first.finish(), InternalError);
    // One that is dropped runs out by itself, and keeps its memory until then.
    { const Move dropped = Move::start(mesh, {item_of(a, whole(a))}, {}); }
    EXPECT_EQ(full(a).to_vector<float>(), t.to_vector<float>());
  });
}

TEST(Move, EntersWhoAskedAndWhy) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DTensor a = distribute(Tensor::arange(4), mesh, {Shard(0)});
    const CallSite here = CallSite::here();
    static_cast<void>(
        move_local(mesh, item_of(a, whole(a)),
                   {.op = "matmul", .cause = Cause::kAutomatic, .of = "loss", .site = here}));
    const LedgerEntry& e = ledger().entries().at(0);
    EXPECT_EQ(e.op, "matmul");
    EXPECT_EQ(e.of, "loss");
    EXPECT_EQ(e.cause, Cause::kAutomatic);
    EXPECT_EQ(e.site.line, here.line);
    EXPECT_NE(std::string(e.site.file).find("move_test"), std::string::npos);
    const std::string table = to_string(ledger());
    for (const char* part : {"all_gather", "matmul of loss", "automatic", "16"}) {
      EXPECT_NE(table.find(part), std::string::npos) << table;
    }
    ledger().recording = false;
    static_cast<void>(move_local(mesh, item_of(a, whole(a)), {}));
    EXPECT_EQ(ledger().entries().size(), 1U);
    EXPECT_EQ(ledger().payload_bytes(), 32) << "totals go on";
    ledger().clear();
    EXPECT_EQ(ledger().payload_bytes(), 0);
  });
}

// pytorch#126616, pytorch#75373: groups of equal shapes gathered in another order are never mixed.
TEST(Move, RanksThatGatherDifferentGroupsAreTold) {
  EXPECT_THROW(run_ranks(2,
                         [](comm::Comm& comm) {
                           const DeviceMesh mesh(comm, {{"x", 2}});
                           const DTensor a = distribute(Tensor::arange(4), mesh, {Shard(0)});
                           MoveItem item = item_of(a, whole(a));
                           item.label = comm.rank() == 0 ? "expert.A" : "expert.B";
                           try {
                             static_cast<void>(move_local(mesh, item, {}));
                             ADD_FAILURE() << "gathered A's rows with B's";
                           } catch (const comm::CommError& e) {
                             EXPECT_EQ(e.fields().kind, comm::CommErrorKind::kMismatch);
                             throw;
                           }
                         }),
               comm::CommError);
}

TEST(Move, ReleasedMemoryIsNotSent) {
  run_ranks(1, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 1}});
    const Tensor t = Tensor::arange(4);
    t.storage()->release();
    MoveItem item{.local = t,
                  .from = Layout::replicated(mesh.layout(), {4}),
                  .to = Layout::replicated(mesh.layout(), {4}),
                  .into = Tensor::zeros({4})};
    EXPECT_THROW(static_cast<void>(move_local(mesh, item, {})), InternalError);
  });
}

}  // namespace
}  // namespace dtensor
