#include "dtensor/tensor/redistribute.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/dtype.h"
#include "dtensor/base/error.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/factory.h"
#include "dtensor/tensor/kernels.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::fault;
using testing::piece_of;
using testing::run_ranks;
using Floats = std::vector<float>;

Ledger& ledger() { return Context::current().slot<Ledger>(); }

Floats values(const DTensor& t) { return t.local_tensor().to_vector<float>(); }

Floats counted(const Shape& shape) {
  Floats all;
  for (int64_t i = 0; i < shape.numel(); ++i) all.push_back(static_cast<float>(i % 11 + 2));
  return all;
}

// Are the mesh dims of both Partial by one op, if at all?
bool is_legal(const Layout& from, const Layout& to) {
  for (int m = 0; m < from.mesh().ndim(); ++m) {
    const Placement a = from.placement(m);
    const Placement b = to.placement(m);
    if (a.is_partial() && b.is_partial() && a.op() != b.op()) return false;
  }
  return true;
}

using Pairs = std::vector<std::pair<Layout, Layout>>;

// Moves an array through every pair, on ranks that hold their pieces as views with gaps.
void check_pairs(const MeshLayout& layout, const Pairs& pairs) {
  const auto n = static_cast<size_t>(layout.size());
  std::vector<std::vector<Floats>> got(pairs.size(), std::vector<Floats>(n));
  std::vector<int64_t> entered(pairs.size(), 0);
  std::vector<std::vector<int64_t>> sent(pairs.size(), std::vector<int64_t>(n));
  run_ranks(layout.size(), [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, layout);
    const Coordinate at = *mesh.coordinate();
    size_t index = 0;
    for (; layout.ranks()[index] != comm.rank(); ++index) {
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto& [from, to] = pairs[i];
      const Tensor piece = piece_of(from, at, counted(from.shape()));
      Shape wide = piece.shape();
      wide.push_back(2);
      const Tensor gaps = Tensor::full(wide, -77);
      const Tensor view = gaps.narrow(wide.ndim() - 1, 1, 1).view(piece.shape());
      kernels::copy(piece, view);
      const DTensor t(view, from, mesh);
      ledger().clear();
      const int64_t before = comm.counters().payload_bytes_sent;
      const DTensor moved = redistribute(t, to);
      sent[i][index] = comm.counters().payload_bytes_sent - before;
      EXPECT_EQ(values(t), piece.to_vector<float>()) << "the argument was changed";
      got[i][index] = values(moved);
      EXPECT_EQ(moved.local_tensor().shape(), to.local_shape(at));
      if (index == 0) entered[i] = ledger().payload_bytes();
    }
  });
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [from, to] = pairs[i];
    const std::string name =
        to_string(from) + " -> " + to_string(to) + " " + to_string(from.shape());
    EXPECT_EQ(fault(to, got[i], counted(from.shape())), "") << name;
    // pytorch#167655: the ledger, the plan and the Comm tell the same.
    EXPECT_EQ(entered[i], plan(from, to).payload() * 4) << name;
    EXPECT_EQ(entered[i], std::accumulate(sent[i].begin(), sent[i].end(), int64_t{0})) << name;
  }
}

TEST(Redistribute, MovesEveryPairOn1dMeshes) {
  for (const int n : {1, 2, 3, 4, 7}) {
    const MeshLayout mesh({{"x", n}});
    Pairs pairs;
    for (const Shape& shape :
         std::vector<Shape>{{}, {1}, {5}, {8}, {0, 3}, {4, 3}, {1, 7}, {2, 5, 3}}) {
      std::vector<Placement> all{Replicate(), Partial(), Partial(PartialOp::kMax),
                                 Partial(PartialOp::kMin), Partial(PartialOp::kProd)};
      for (int d = 0; d < shape.ndim(); ++d) all.push_back(Shard(d));
      for (const Placement a : all) {
        for (const Placement b : all) {
          const Layout from(mesh, shape, {a});
          const Layout to(mesh, shape, {b});
          if (is_legal(from, to)) pairs.emplace_back(from, to);
        }
      }
    }
    check_pairs(mesh, pairs);
  }
}

TEST(Redistribute, MovesEveryPairOn2dMeshesInBothOrders) {
  for (const MeshLayout& mesh : {MeshLayout({{"a", 2}, {"b", 2}}), MeshLayout({{"a", 2}, {"b", 3}}),
                                 MeshLayout({{"a", 2}, {"b", 2}}, {3, 1, 0, 2})}) {
    Pairs pairs;
    for (const Shape& shape : std::vector<Shape>{{5}, {7, 4}, {2, 5, 3}}) {
      std::vector<Placement> choices{Replicate(), Partial(), Shard(0)};
      if (shape.ndim() > 1) choices.push_back(Shard(1));
      std::vector<Layout> all;
      for (const Placement a : choices) {
        for (const Placement b : choices) {
          const Layout whole = Layout::replicated(mesh, shape);
          all.push_back(whole.with(0, a).with(1, b));
          if (a.is_shard() && a == b) all.push_back(whole.with(1, b).with(0, a));
        }
      }
      for (const Layout& from : all) {
        for (const Layout& to : all) pairs.emplace_back(from, to);
      }
    }
    check_pairs(mesh, pairs);
  }
}

TEST(Redistribute, MovesUnitsAndWeights) {
  const MeshLayout mesh({{"a", 2}, {"b", 3, {1, 0, 2}}});
  Pairs pairs;
  const Layout whole = Layout::replicated(mesh, {30, 3});
  const std::vector<Layout> all{whole.with(1, Shard(0), 6).with(0, Shard(0)),
                                whole.with(0, Shard(0), 4),
                                whole.with(0, Shard(0)).with(1, Shard(0)),
                                whole.with(0, Shard(1)).with(1, Shard(0), 7), whole};
  for (const Layout& from : all) {
    for (const Layout& to : all) pairs.emplace_back(from, to);
  }
  check_pairs(mesh, pairs);
}

// pytorch#103306, pytorch#194457: there and back, from views too; NaN payloads stay.
TEST(Redistribute, RoundTripLeavesShapeAndBitsAlone) {
  run_ranks(4, [](comm::Comm& comm) {
    const auto nan_at = [](const Tensor& t) {
      static_cast<uint32_t*>(t.raw())[2] = 0x7fc54321U;
      return t;
    };
    const auto bits = [](const Tensor& t) {
      std::vector<uint32_t> all;
      for (const float x : t.to_vector<float>()) all.push_back(std::bit_cast<uint32_t>(x));
      return all;
    };
    const DeviceMesh line(comm, {{"x", 4}});
    const DeviceMesh square(comm, {{"a", 2}, {"b", 2}});
    for (const bool transposed : {false, true}) {
      const auto source = [&](int64_t rows, int64_t columns) {
        if (transposed) {
          return nan_at(Tensor::arange(rows * columns).view({columns, rows})).transpose(0, 1);
        }
        const Tensor twice = nan_at(Tensor::arange(2 * rows * columns).view({rows, 2, columns}));
        return twice.narrow(1, 0, 1).view({rows, columns});
      };
      ledger().clear();
      const Tensor a = source(5, 10);
      const DTensor r(a, Layout::replicated(line.layout(), {5, 10}), line);
      const DTensor s = redistribute(r, {Shard(0)});
      EXPECT_EQ(s.local_tensor().size(0), comm.rank() == 0 ? 2 : 1);
      EXPECT_EQ(ledger().payload_bytes(), 0);
      const DTensor back = redistribute(s, {Replicate()});
      EXPECT_EQ(back.shape(), (Shape{5, 10}));
      EXPECT_EQ(bits(back.local_tensor()), bits(a));
      EXPECT_EQ(ledger().payload_bytes(), 600);

      ledger().clear();
      const Tensor b = source(5, 3);
      const DTensor whole(b, Layout::replicated(square.layout(), {5, 3}), square);
      const DTensor nested = redistribute(whole, {Shard(0), Shard(0)});
      EXPECT_EQ(nested.local_tensor().size(0), comm.rank() == 0 ? 2 : 1);
      EXPECT_EQ(bits(redistribute(nested, {Replicate(), Replicate()}).local_tensor()), bits(b));
      EXPECT_EQ(ledger().payload_bytes(), 180);
    }
  });
}

// pytorch#194457, autoparallel#462, pytorch#131210
TEST(Redistribute, SendsTheLeastBytes) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh line(comm, {{"x", 4}});
    const DeviceMesh square(comm, {{"a", 2}, {"b", 2}});
    const auto bytes = [](const DTensor& t, const Layout& to, const Floats& want) {
      ledger().clear();
      const DTensor moved = redistribute(t, to);
      EXPECT_EQ(values(moved), want);
      return ledger().payload_bytes();
    };
    const auto r = static_cast<size_t>(comm.rank());
    const DTensor nested = distribute(Tensor::arange(5), square, {Shard(0), Shard(0)});
    const Layout inner = nested.layout().with(0, Replicate());
    const Floats halves[] = {{0, 1, 2}, {3, 4}, {0, 1, 2}, {3, 4}};
    const Floats cut_again[] = {{0, 1}, {3}, {2}, {4}};
    EXPECT_EQ(bytes(nested, inner, halves[r]), 28);
    const DTensor half = redistribute(nested, inner);
    EXPECT_EQ(bytes(half, nested.layout(), values(nested)), 8);
    EXPECT_EQ(bytes(half, half.layout().with(0, Shard(0)), cut_again[r]), 0);

    const DTensor rows = distribute(Tensor::arange(15).view({3, 5}), line, {Shard(0)});
    const Floats columns[] = {{0, 1, 5, 6, 10, 11}, {2, 7, 12}, {3, 8, 13}, {4, 9, 14}};
    EXPECT_EQ(bytes(rows, rows.layout().with(0, Shard(1)), columns[r]), 44);

    const DTensor deep =
        distribute(Tensor::arange(30).view({2, 5, 3}), square, {Shard(1), Shard(1)});
    const Layout to(square.layout(), {2, 5, 3}, {Shard(1), Shard(2)});
    ledger().clear();
    EXPECT_EQ(values(redistribute(deep, to)),
              piece_of(to, *square.coordinate(), Tensor::arange(30).to_vector<float>())
                  .to_vector<float>());
    EXPECT_EQ(ledger().payload_bytes(), 56);
  });
}

// pytorch#110898, pytorch#168133: the value is kept once.
TEST(Redistribute, ToPartialKeepsTheValueAtCoordinateZero) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    using Ints = std::vector<int32_t>;
    const DTensor t = distribute(Tensor::of<int32_t>({7, -3}, {2}), mesh, {});
    const auto check = [&](PartialOp op, const Ints& elsewhere) {
      ledger().clear();
      const DTensor p = redistribute(t, {Partial(op), Partial(op)});
      EXPECT_EQ(p.local_tensor().to_vector<int32_t>(),
                comm.rank() == 0 ? Ints({7, -3}) : elsewhere);
      EXPECT_EQ(ledger().entries().size(), 0U);
      const DTensor back = redistribute(p, {Replicate(), Replicate()});
      EXPECT_EQ(back.local_tensor().to_vector<int32_t>(), Ints({7, -3}));
    };
    check(PartialOp::kSum, {0, 0});
    check(PartialOp::kProd, {1, 1});
    check(PartialOp::kMin, {7, -3});
    check(PartialOp::kMax, {7, -3});
  });
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 3}});
    const DTensor t = distribute(Tensor::full({1}, 0.1, DType::kBFloat16), mesh, {});
    const DTensor back = redistribute(redistribute(t, {Partial()}), {Replicate()});
    EXPECT_EQ(static_cast<float>(back.local_tensor().to_vector<BFloat16>()[0]), 0.10009765625F);
  });
}

// pytorch#172041, pytorch#172042: no relabelling.
TEST(Redistribute, BetweenPartialsIsAnErrorThatChangesNothing) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const float mine = comm.rank() == 0 ? 1.0F : 3.0F;
    const DTensor t(Tensor::full({1}, mine), Layout(mesh.layout(), {1}, {Partial()}), mesh);
    ledger().clear();
    EXPECT_THROW(static_cast<void>(redistribute(t, {Partial(PartialOp::kMax)})), PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, {Partial(PartialOp::kProd)})), PlacementError);
    const DTensor low(Tensor::full({1}, mine),
                      Layout(mesh.layout(), {1}, {Partial(PartialOp::kMin)}), mesh);
    EXPECT_THROW(static_cast<void>(redistribute(low, {Partial()})), PlacementError);
    EXPECT_EQ(values(t), Floats{mine});
    EXPECT_EQ(to_string(t.layout().placement(0)), "P(sum)");
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_EQ(redistribute(t, {Partial()}).impl(), t.impl());
  });
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    EXPECT_THROW(zeros({2}, mesh, {Partial(), Partial(PartialOp::kMax)}), PlacementError);
  });
}

// pytorch#103306: nothing but data enters max and prod.
TEST(Redistribute, ReducesMaximaAndProductsOfUnevenParts) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 4}});
    const auto r = static_cast<size_t>(comm.rank());
    const auto partial = [&](const Floats& mine, PartialOp op) {
      const Shape shape{static_cast<int64_t>(mine.size())};
      return DTensor(Tensor::of(std::span<const float>(mine), shape),
                     Layout(mesh.layout(), shape, {Partial(op)}), mesh);
    };
    const Floats lows[] = {
        {-9, -2, -7, -4, -6}, {-3, -8, -5, -9, -7}, {-4, -6, -1, -8, -9}, {-5, -7, -9, -3, -2}};
    const DTensor max = partial(lows[r], PartialOp::kMax);
    EXPECT_EQ(values(redistribute(max, {Replicate()})), (Floats{-3, -2, -1, -3, -2}));
    const Floats cut_max[] = {{-3, -2}, {-1}, {-3}, {-2}};
    EXPECT_EQ(values(redistribute(max, {Shard(0)})), cut_max[r]);
    const Floats factors[] = {{2, 3, 1}, {1, 5, 1}, {7, 1, 1}, {1, 1, 3}};
    const DTensor prod = partial(factors[r], PartialOp::kProd);
    EXPECT_EQ(values(redistribute(prod, {Replicate()})), (Floats{14, 15, 3}));
    const Floats cut_prod[] = {{14}, {15}, {3}, {}};
    EXPECT_EQ(values(redistribute(prod, {Shard(0)})), cut_prod[r]);
  });
}

// numpy#21218, pytorch#110898: a sum starts at nothing, not at +0.0.
TEST(Redistribute, MinusZeroComesBackFromAPartial) {
  const auto check = [](const DTensor& t, const Tensor& want) {
    const Tensor whole = redistribute(t, Layout::replicated(t.layout().mesh(), t.shape()))
                             .local_tensor()
                             .contiguous();
    ASSERT_EQ(whole.size_bytes(), want.size_bytes());
    EXPECT_EQ(
        std::string(static_cast<const char*>(whole.raw()), static_cast<size_t>(whole.size_bytes())),
        std::string(static_cast<const char*>(want.raw()), static_cast<size_t>(want.size_bytes())))
        << name_of(t.dtype());
  };
  const std::vector<DType> dtypes{DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                  DType::kBFloat16};
  for (const int n : {2, 3, 7}) {
    run_ranks(n, [&](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"x", n}});
      for (const DType dtype : dtypes) {
        const Tensor full = Tensor::of<double>({-0.0, 0.0, 1.5}, {3}).to(dtype);
        const DTensor r = distribute(full, mesh, {});
        const DTensor s = distribute(full, mesh, {Shard(0)});
        ledger().clear();
        const DTensor p = redistribute(r, {Partial()});
        const DTensor q = redistribute(s, {Partial()});
        EXPECT_EQ(ledger().payload_bytes(), 0);
        if (comm.rank() > 0) {
          EXPECT_TRUE(std::signbit(p.local_tensor().to(DType::kFloat64).to_vector<double>()[1]));
        }
        check(p, full);
        check(q, full);
        check(redistribute(p, {Shard(0)}), full);
      }
      const Tensor ints = Tensor::of<int32_t>({0, 5}, {2});
      check(redistribute(distribute(ints, mesh, {}), {Partial()}), ints);
    });
  }
  run_ranks(4, [&](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    for (const DType dtype : dtypes) {
      const Tensor full = Tensor::of<double>({-0.0, 0.0, 1.5}, {3}).to(dtype);
      const DTensor p = redistribute(distribute(full, mesh, {}), {Partial(), Partial()});
      check(redistribute(p, {Shard(0), Replicate()}), full);
    }
  });
}

struct Identities {
  DType dtype;
  uint64_t sum, prod, min, max;  // as bits
};
constexpr Identities kIdentities[] = {
    {DType::kFloat32, 0x80000000, 0x3f800000, 0x7f800000, 0xff800000},
    {DType::kFloat64, uint64_t{1} << 63, 0x3ff0000000000000, 0x7ff0000000000000,
     0xfff0000000000000},
    {DType::kFloat16, 0x8000, 0x3c00, 0x7c00, 0xfc00},
    {DType::kBFloat16, 0x8000, 0x3f80, 0x7f80, 0xff80},
    {DType::kInt8, 0, 1, 0x7f, 0x80},
    {DType::kUInt8, 0, 1, 0xff, 0},
    {DType::kInt32, 0, 1, 0x7fffffff, 0x80000000},
    {DType::kInt64, 0, 1, 0x7fffffffffffffff, uint64_t{1} << 63},
    {DType::kBool, 0, 1, 1, 0}};

// Of every element.
std::vector<uint64_t> bits_of(const Tensor& t) {
  const Tensor dense = t.contiguous();
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  std::vector<uint64_t> all(static_cast<size_t>(t.numel()), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&all[i], static_cast<const char*>(dense.raw()) + i * size, size);
  }
  return all;
}

// Does the rank at a coordinate keep element `i` of its piece of `to`? On each mesh dim that
// becomes Partial: what it held as a part; of R the value at coordinate 0 (min and max: anywhere).
bool keeps(const Layout& from, const Layout& to, const Coordinate& at, int64_t i) {
  const PartialOp op = to.spec().partial_op();
  for (int m = 0; m < to.mesh().ndim(); ++m) {
    if (!to.placement(m).is_partial() || !from.placement(m).is_replicate()) continue;
    if ((op == PartialOp::kSum || op == PartialOp::kProd) && at[m] != 0) return false;
  }
  const Box box = from.box(at);
  return i >= box.offset[0] && i < box.offset[0] + box.size[0];
}

// numpy#21218, pytorch#110898, pytorch#168133: every fill, by its bits, in every dtype.
TEST(Redistribute, WhatARankDoesNotKeepIsTheIdentity) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const Coordinate at = *mesh.coordinate();
    const auto check = [&](const Identities& of, PartialOp op, uint64_t identity) {
      const Tensor whole = Tensor::of<double>({-0.0, 1, 5, 0, 7}, {5}).to(of.dtype);
      const std::vector<uint64_t> value = bits_of(whole);
      const Placement p = Partial(op);
      const std::pair<std::vector<Placement>, std::vector<Placement>> moves[] = {
          {{Replicate(), Replicate()}, {p, p}}, {{Replicate(), Replicate()}, {Replicate(), p}},
          {{Shard(0), Replicate()}, {p, p}},    {{Shard(0), Replicate()}, {p, Replicate()}},
          {{Replicate(), Shard(0)}, {p, p}},    {{Shard(0), Replicate()}, {Shard(0), p}},
          {{Shard(0), Shard(0)}, {p, p}}};
      for (const auto& [from, to] : moves) {
        const DTensor t = distribute(whole, mesh, from);
        ledger().clear();
        const DTensor moved = redistribute(t, to);
        EXPECT_TRUE(ledger().entries().empty());
        const Box box = moved.layout().box(at);
        std::vector<uint64_t> want;
        for (int64_t i = box.offset[0]; i < box.offset[0] + box.size[0]; ++i) {
          const bool kept = keeps(t.layout(), moved.layout(), at, i);
          want.push_back(kept ? value[static_cast<size_t>(i)] : identity);
        }
        EXPECT_EQ(bits_of(moved.local_tensor()), want)
            << name_of(of.dtype) << " " << to_string(t.layout()) << " -> "
            << to_string(moved.layout());
        if (of.dtype == DType::kBool && op == PartialOp::kSum) continue;  // bools have no sum
        EXPECT_EQ(bits_of(redistribute(moved, {}).local_tensor()), value)
            << name_of(of.dtype) << " " << to_string(moved.layout());
      }
    };
    for (const Identities& of : kIdentities) {
      check(of, PartialOp::kSum, of.sum);
      check(of, PartialOp::kProd, of.prod);
      check(of, PartialOp::kMin, of.min);
      check(of, PartialOp::kMax, of.max);
    }
  });
}

// pytorch#169381: nothing is sent over a mesh dim of size 1.
TEST(Redistribute, SizeOneMeshDimsCostNothing) {
  run_ranks(1, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
    std::vector<Placement> all{Replicate(),
                               Shard(0),
                               Shard(1),
                               Partial(),
                               Partial(PartialOp::kProd),
                               Partial(PartialOp::kMax)};
    const Tensor full = Tensor::arange(6).view({2, 3});
    for (const Placement a : all) {
      for (const Placement b : all) {
        if (a.is_partial() && b.is_partial() && a != b) continue;
        const DTensor t = distribute(full, mesh, {Replicate(), a});
        const DTensor moved = redistribute(t, {Replicate(), b, Replicate(), Replicate()});
        EXPECT_EQ(values(moved), full.to_vector<float>());
        EXPECT_EQ(moved.layout().placement(1), b);
      }
    }
    EXPECT_TRUE(ledger().entries().empty());
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(Redistribute, ToEqualBoundariesReturnsItsArgument) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    DTensor t = zeros({8, 3}, mesh, {Shard(0)});
    t.set_requires_grad(true);
    EXPECT_EQ(redistribute(t, {Shard(0)}).impl(), t.impl());
    EXPECT_EQ(redistribute(t, {Shard(-2)}).impl(), t.impl());
    EXPECT_EQ(redistribute(t, mesh["x"], {Shard(0)}).impl(), t.impl());
    EXPECT_EQ(redistribute(t, t.layout().with(0, Shard(0), 2)).impl(), t.impl()) << "4, 4 as well";
    EXPECT_EQ(replicate(t, mesh).impl(), t.impl());
    EXPECT_EQ(comm.counters().calls, 0);
  });
}

TEST(Redistribute, ASliceChangesOnlyItsDims) {
  run_ranks(4, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"dp", 2}, {"tp", 2}});
    const Layout by_heads =
        Layout::replicated(mesh.layout(), {10, 2}).with(1, Shard(0), 4).with(0, Shard(0));
    const DTensor w = distribute(Tensor::arange(20).view({10, 2}), mesh, by_heads);
    const DTensor gathered = redistribute(w, mesh["dp"], {Replicate()});
    EXPECT_EQ(gathered.layout(), by_heads.with(0, Replicate()));
    EXPECT_EQ(gathered.local_tensor().size(0), mesh.coordinate("tp") == 0 ? 8 : 2);
    EXPECT_THROW(static_cast<void>(redistribute(w, mesh["dp"], {})), ArgumentError);
  });
}

TEST(Redistribute, RefusesWhatItCannotDo) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}});
    const DeviceMesh swapped(comm, {{"x", 2}}, {1, 0});
    const DTensor t = zeros({4, 6}, mesh, {});
    EXPECT_THROW(static_cast<void>(redistribute(t, {Shard(2)})), PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, {Shard(-3)})), PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, {Replicate(), Replicate()})), PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, swapped["x"], {Shard(0)})), PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, Layout(swapped.layout(), {4, 6}, {Shard(0)}))),
                 PlacementError);
    EXPECT_THROW(static_cast<void>(redistribute(t, Layout(mesh.layout(), {6, 4}, {Shard(0)}))),
                 ArgumentError);
    EXPECT_THROW(static_cast<void>(replicate(t, swapped)), PlacementError);
    const DTensor plain(Tensor::zeros({4, 6}));
    EXPECT_THROW(static_cast<void>(redistribute(plain, {Shard(0)})), PlacementError);
    // pytorch#169361: a scalar has no dim to cut; of a scalar R and P are legal.
    EXPECT_THROW(static_cast<void>(redistribute(zeros({}, mesh, {}), {Shard(0)})), PlacementError);
    EXPECT_EQ(to_string(redistribute(t, {Shard(-1)}).layout().placement(0)), "S(1)");
    const DTensor sum(Tensor::full({}, comm.rank() == 0 ? 1.5 : 2.25),
                      Layout(mesh.layout(), {}, {Partial()}), mesh);
    EXPECT_EQ(values(redistribute(sum, {Replicate()})), Floats{3.75});
  });
}

TEST(Redistribute, OutsideTheMeshAHandleChangesAndNothingMoves) {
  run_ranks(3, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"x", 2}}, {2, 0});
    const DTensor t = distribute(Tensor::arange(5), mesh, {Shard(0)});
    const DTensor all = redistribute(t, {Replicate()});
    EXPECT_EQ(all.has_local(), comm.rank() != 1);
    EXPECT_EQ(all.shape(), Shape{5});
    EXPECT_EQ(to_string(all.layout().placement(0)), "R");
    if (comm.rank() == 1) {
      EXPECT_TRUE(ledger().entries().empty());
      EXPECT_THROW(static_cast<void>(all.local_tensor()), InternalError);
      EXPECT_THROW(static_cast<void>(all.item()), ArgumentError);
    } else {
      EXPECT_EQ(values(all), (Floats{0, 1, 2, 3, 4}));
      EXPECT_EQ(values(t), comm.rank() == 2 ? (Floats{0, 1, 2}) : (Floats{3, 4}));
    }
  });
}

}  // namespace
}  // namespace dtensor
