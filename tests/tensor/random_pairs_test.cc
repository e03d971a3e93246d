// Random pairs of layouts, on one mesh and between two, moved over real Comms: bit-equal to what
// plain loops gather and cut, for the bytes that the plan says, and the gradient back.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/base/context.h"
#include "dtensor/base/error.h"
#include "dtensor/placement/reshard_plan.h"
#include "dtensor/tensor/autograd.h"
#include "dtensor/tensor/distribute.h"
#include "dtensor/tensor/ledger.h"
#include "dtensor/tests/support/run_ranks.h"
#include "dtensor/tests/tensor/pieces.h"

namespace dtensor {
namespace {

using testing::run_ranks;
using Floats = std::vector<float>;

constexpr int kPairs = 500;
constexpr uint32_t kSeed = 20240607;

// The same numbers on every machine: no distribution of the library's.
class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> all) {
    return *(all.begin() + below(static_cast<int>(all.size())));
  }

 private:
  std::mt19937 engine_;
};

MeshLayout random_mesh(Dice& dice, int world) {
  while (true) {
    std::vector<MeshDim> dims;
    int size = 1;
    for (int m = dice.below(3); m >= 0; --m) {
      MeshDim dim{std::string(1, static_cast<char>('a' + dims.size())), dice.of({1, 2, 2, 3, 4})};
      if (dice.one_in(4)) {
        for (int c = 0; c < dim.size; ++c) dim.weights.push_back(dice.below(3));
        if (std::ranges::count(dim.weights, 0) == dim.size) dim.weights.clear();
      }
      size *= dim.size;
      dims.push_back(dim);
    }
    if (size > world) continue;
    std::vector<int> ranks;  // some of the world's, in any order
    for (int r = 0; r < world; ++r) ranks.push_back(r);
    for (int i = world - 1; i > 0; --i) {
      std::swap(ranks[static_cast<size_t>(i)], ranks[static_cast<size_t>(dice.below(i + 1))]);
    }
    ranks.resize(static_cast<size_t>(size));
    return MeshLayout(dims, ranks);
  }
}

Layout random_layout(Dice& dice, const MeshLayout& mesh, const Shape& shape,
                     std::optional<PartialOp> op) {
  Layout layout = Layout::replicated(mesh, shape);
  std::vector<int> order;
  for (int m = 0; m < mesh.ndim(); ++m) {
    order.insert(order.begin() + dice.below(m + 1), m);
  }
  for (const int m : order) {
    const int choice = dice.below(5);
    if (choice <= 2 && shape.ndim() > 0) {
      layout = layout.with(m, Shard(dice.below(shape.ndim())), dice.of({1, 1, 2, 3}));
    } else if (choice == 3 && op) {
      layout = layout.with(m, Partial(*op));
    }
  }
  return layout;
}

struct Pair {
  Layout from;
  Layout to;
  DType dtype = DType::kFloat32;
  std::optional<DType> wire_dtype;
  std::string name;
};

bool is_legal(const Layout& from, const Layout& to) {
  try {
    static_cast<void>(plan(from, to));
  } catch (const PlacementError&) {
    return false;
  }
  return true;
}

std::vector<Pair> random_pairs(int world, int number, uint32_t seed) {
  Dice dice(seed);
  std::vector<Pair> pairs;
  while (static_cast<int>(pairs.size()) < number) {
    Shape shape;
    for (int d = dice.below(4); d > 0; --d) shape.push_back(dice.of({0, 1, 2, 3, 5, 7, 8}));
    const auto op = dice.of(
        {PartialOp::kSum, PartialOp::kSum, PartialOp::kMin, PartialOp::kMax, PartialOp::kProd});
    const MeshLayout a = random_mesh(dice, world);
    const MeshLayout b = dice.one_in(2) ? random_mesh(dice, world) : a;
    Pair pair{random_layout(dice, a, shape, op),
              random_layout(dice, b, shape, op),
              dice.of({DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                       DType::kFloat16, DType::kInt32, DType::kInt64, DType::kInt8, DType::kUInt8}),
              std::nullopt,
              {}};
    if (is_floating(pair.dtype) && dice.one_in(4)) pair.wire_dtype = DType::kBFloat16;
    if (!is_legal(pair.from, pair.to)) continue;
    // Terms may be negative.
    if (pair.dtype == DType::kUInt8 && pair.from.spec().has_partial()) pair.dtype = DType::kInt8;
    pair.name = std::to_string(pairs.size()) + ": " + to_string(pair.from) + " -> " +
                to_string(pair.to) + " " + to_string(shape) + " " +
                std::string(name_of(pair.dtype));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

// Small whole numbers: exact in every dtype and in every order of reduction.
Floats counted(const Shape& shape) {
  Floats all;
  for (int64_t i = 0; i < shape.numel(); ++i) all.push_back(static_cast<float>(i % 11 + 2));
  return all;
}

DTensor made(const Layout& layout, const DeviceMesh& mesh, DType dtype) {
  if (!mesh.coordinate()) return DTensor(dtype, layout, mesh);
  return DTensor(testing::piece_of(layout, *mesh.coordinate(), counted(layout.shape())).to(dtype),
                 layout, mesh);
}

struct Found {
  std::vector<std::vector<Floats>> pieces;   // by pair, by rank
  std::vector<std::vector<int64_t>> sent;    // payload bytes that the Comm counted
  std::vector<std::vector<int64_t>> ledger;  // wire bytes that the ledger says; -1: outside
};

void check(int world, const std::vector<Pair>& pairs) {
  Found found{{pairs.size(), std::vector<Floats>(static_cast<size_t>(world))},
              {pairs.size(), std::vector<int64_t>(static_cast<size_t>(world))},
              {pairs.size(), std::vector<int64_t>(static_cast<size_t>(world), -1)}};
  run_ranks(world, [&](comm::Comm& comm) {
    Ledger& ledger = Context::current().slot<Ledger>();
    const auto r = static_cast<size_t>(comm.rank());
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Pair& pair = pairs[i];
      const DeviceMesh a(comm, pair.from.mesh());
      const DeviceMesh b =
          pair.to.mesh() == pair.from.mesh() ? a : DeviceMesh(comm, pair.to.mesh());
      const DTensor t = made(pair.from, a, pair.dtype);
      ledger.clear();
      const int64_t before = comm.counters().payload_bytes_sent;
      const LookAhead ahead = look_ahead(t, b, pair.to);
      const DTensor moved = redistribute(t, b, pair.to, {.wire_dtype = pair.wire_dtype});
      found.sent[i][r] = comm.counters().payload_bytes_sent - before;
      if (moved.has_local()) {
        EXPECT_EQ(moved.dtype(), pair.dtype);
        found.pieces[i][r] = moved.local_tensor().to(DType::kFloat32).to_vector<float>();
        EXPECT_EQ(ahead.shares_memory,
                  t.has_local() && moved.local_tensor().storage() == t.local_tensor().storage())
            << pair.name;
      }
      if (a.coordinate() || b.coordinate()) {
        found.ledger[i][r] = ledger.wire_bytes();
        EXPECT_EQ(ledger.payload_bytes(), ahead.payload_bytes) << pair.name;
        EXPECT_EQ(ledger.entries().empty(), ahead.is_free) << pair.name;
      }
    }
  });
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    std::vector<Floats> in_order;
    for (const int rank : pair.to.mesh().ranks()) {
      in_order.push_back(found.pieces[i][static_cast<size_t>(rank)]);
    }
    EXPECT_EQ(testing::fault(pair.to, in_order, counted(pair.to.shape())), "") << pair.name;
    const bool moves = !(pair.from == pair.to) && !(pair.from.mesh() == pair.to.mesh() &&
                                                    equal_boundaries(pair.from, pair.to));
    const int64_t elements = moves ? plan(pair.from, pair.to).payload() : 0;
    const int64_t bytes = elements * size_of(pair.wire_dtype.value_or(pair.dtype));
    int64_t sent = 0;
    for (const int64_t s : found.sent[i]) sent += s;
    // pytorch#167655, pytorch#188946: the plan, the ledgers and the Comm tell the same.
    EXPECT_EQ(sent, bytes) << pair.name;
    for (const int64_t l : found.ledger[i]) {
      if (l >= 0) {
        EXPECT_EQ(l, bytes) << pair.name;
      }
    }
  }
}

TEST(RandomPairs, AreBitEqualForTheBytesThatThePlanSays) {
  for (const int world : {3, 6, 8}) {
    check(world, random_pairs(world, kPairs / 3 + 1, kSeed + static_cast<uint32_t>(world)));
  }
}

// sum of w_i t_i over the global elements of a tensor that this rank may have no part of. Where
// `parts`, each rank of a mesh dim on which t is R counts some of the elements: a Partial gradient.
DTensor weighted_sum(const DTensor& t, const Floats& w, bool parts) {
  Layout sum = Layout::replicated(t.layout().mesh(), Shape{});
  Layout grad = t.layout();  // where the gradient lies
  const MeshLayout& mesh = t.layout().mesh();
  for (int m = 0; m < mesh.ndim(); ++m) {
    const Placement p = t.layout().placement(m);
    if (p.is_partial()) grad = grad.with(m, Replicate());
    if (p.is_replicate() && parts) grad = grad.with(m, Partial());
    if (!p.is_replicate() || parts) sum = sum.with(m, Partial());
  }
  Tensor weights;
  DTensor out;
  if (t.has_local()) {
    // piece_of gives the parts of a Partial array that add up to it.
    weights = testing::piece_of(grad, *t.mesh().coordinate(), w);
    const Floats xs = t.local_tensor().to_vector<float>();
    const Floats ws = weights.to_vector<float>();
    float value = 0;
    for (size_t k = 0; k < xs.size(); ++k) value += xs[k] * ws[k];
    out = DTensor(Tensor::full({}, value), sum, t.mesh());
  } else {
    out = DTensor(t.dtype(), sum, t.mesh());
  }
  record("weighted_sum", {&t, 1}, {&out, 1},
         [weights, grad, mesh = t.mesh(), dtype = t.dtype()](std::span<const DTensor>) {
           return std::vector<DTensor>{weights.defined() ? DTensor(weights, grad, mesh)
                                                         : DTensor(dtype, grad, mesh)};
         });
  return out;
}

// d(sum of w t)/dx is w, by the placement of x, however x came to t.
TEST(RandomPairs, TheirGradientsComeBack) {
  const int world = 6;
  int checked = 0;
  std::vector<Pair> pairs;
  for (Pair& pair : random_pairs(world, kPairs, kSeed)) {
    const auto has_gradient = [](const Layout& l) {
      return !l.spec().has_partial() || l.spec().partial_op() == PartialOp::kSum;
    };
    if (pair.from.spec().has_partial() || !has_gradient(pair.to)) continue;
    pairs.push_back(std::move(pair));
  }
  std::vector<std::vector<Floats>> got(pairs.size() * 2,
                                       std::vector<Floats>(static_cast<size_t>(world)));
  run_ranks(world, [&](comm::Comm& comm) {
    for (size_t i = 0; i < pairs.size() * 2; ++i) {
      const Pair& pair = pairs[i / 2];
      const DeviceMesh a(comm, pair.from.mesh());
      const DeviceMesh b =
          pair.to.mesh() == pair.from.mesh() ? a : DeviceMesh(comm, pair.to.mesh());
      DTensor x = made(pair.from, a, DType::kFloat32);
      x.set_requires_grad(true);
      const DTensor t = redistribute(x, b, pair.to);
      weighted_sum(t, counted(pair.to.shape()), i % 2 == 1).backward();
      EXPECT_EQ(x.grad().layout(), x.layout()) << pair.name;
      if (a.coordinate()) {
        got[i][static_cast<size_t>(comm.rank())] = x.grad().local_tensor().to_vector<float>();
      }
    }
  });
  for (size_t i = 0; i < got.size(); ++i) {
    const Pair& pair = pairs[i / 2];
    std::vector<Floats> in_order;
    for (const int rank : pair.from.mesh().ranks()) {
      in_order.push_back(got[i][static_cast<size_t>(rank)]);
    }
    EXPECT_EQ(testing::fault(pair.from, in_order, counted(pair.from.shape())), "")
        << pair.name << (i % 2 == 1 ? ", of a Partial gradient" : "");
    ++checked;
  }
  EXPECT_GT(checked, kPairs / 4);
}

}  // namespace
}  // namespace dtensor
