#include "dtensor/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "dtensor/tests/ops/tensors.h"
#include "dtensor/tests/support/run_ranks.h"

namespace dtensor {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// q = k = 0 and v = 1..5: row i is the mean of what it sees.
struct Case {
  DTensor q;
  DTensor k;
  DTensor v;
};
Case zeros_and_counts(const DeviceMesh& mesh, Placement of_q, Placement of_kv) {
  const Tensor zero = Tensor::zeros({1, 5, 1, 1});
  return {distribute(Tensor::zeros({1, 5, 1, 1, 1}), mesh, {of_q}), distribute(zero, mesh, {of_kv}),
          leaf(floats({1, 2, 3, 4, 5}, {1, 5, 1, 1}), mesh, {of_kv})};
}

// pytorch#141429, pytorch#185493: the second rank's mask starts at its own first query.
TEST(Attention, OfCutQueriesMasksByGlobalPositions) {
  for (const int size : {2, 3}) {
    run_ranks(size, [](comm::Comm& comm) {
      const DeviceMesh mesh(comm, {{"cp", comm.size()}});
      const Case c = zeros_and_counts(mesh, Shard(1), Replicate());
      const DTensor y = attention(c.q, c.k, c.v);
      EXPECT_EQ(y.spec().placement(0), Shard(1));
      EXPECT_THAT(whole(y), Pointwise(FloatNear(1e-6F), std::vector<float>{1, 1.5F, 2, 2.5F, 3}));
      sum(y).backward();
      EXPECT_THAT(piece(c.v.grad()),
                  Pointwise(FloatNear(1e-6F),
                            std::vector<float>{2.2833333F, 1.2833333F, 0.7833333F, 0.45F, 0.2F}));
      const DTensor all = attention(c.q, c.k, c.v, {.causal = false});
      EXPECT_THAT(whole(all), Pointwise(FloatNear(1e-6F), std::vector<float>{3, 3, 3, 3, 3}));
    });
  }
}

TEST(Attention, OverKeyShardsIsRefused) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"cp", 2}});
    const Case c = zeros_and_counts(mesh, Replicate(), Shard(1));
    EXPECT_THAT(placement_error([&] { attention(c.q, c.k, c.v); }),
                AllOf(HasSubstr("attention: q f32[1,5,1,1,1] is R, k f32[1,5,1,1] is S(1)"),
                      HasSubstr("'s' may not be cut"), HasSubstr("redistribute(k, ")));
  });
}

TEST(Attention, CountsKeysThatStandBeforeTheFirstQuery) {
  const DTensor q(Tensor::zeros({1, 1, 1, 1, 1}));
  const DTensor k(Tensor::zeros({1, 5, 1, 1}));
  const DTensor v(floats({1, 2, 3, 4, 5}, {1, 5, 1, 1}));
  EXPECT_THAT(piece(attention(q, k, v, {.query_offset = 3})),
              Pointwise(FloatNear(1e-6F), std::vector<float>{2.5F}));
}

struct Numbers {
  std::vector<double> values;
  Shape shape;
  double at(std::initializer_list<int64_t> index) const {
    int64_t flat = 0;
    int d = 0;
    for (const int64_t i : index) {
      flat = flat * shape[d] + (shape[d] == 1 ? 0 : i);
      ++d;
    }
    return values[static_cast<size_t>(flat)];
  }
};

Numbers waves(const Shape& shape, double phase) {
  Numbers n{std::vector<double>(static_cast<size_t>(shape.numel())), shape};
  for (size_t i = 0; i < n.values.size(); ++i) {
    n.values[i] = std::sin(phase + 1.7 * static_cast<double>(i));
  }
  return n;
}

DTensor tensor(const Numbers& n) {
  return DTensor(Tensor::of(std::span<const double>(n.values), n.shape));
}

// The definition, query by query. `hidden(b,g,r,t,s)` and `added(...)` are the mask.
template <class Hidden, class Added>
std::vector<double> by_definition(const Numbers& q, const Numbers& k, const Numbers& v,
                                  const Hidden& hidden, const Added& added) {
  std::vector<double> y(q.values.size(), 0.0);
  size_t row = 0;
  const int64_t width = q.shape[4];
  for (int64_t b = 0; b < q.shape[0]; ++b) {
    for (int64_t t = 0; t < q.shape[1]; ++t) {
      for (int64_t g = 0; g < q.shape[2]; ++g) {
        for (int64_t r = 0; r < q.shape[3]; ++r, ++row) {
          double total = 0.0;
          for (int64_t s = 0; s < k.shape[1]; ++s) {
            if (hidden(b, g, r, t, s)) continue;
            double score = 0.0;
            for (int64_t c = 0; c < width; ++c) score += q.at({b, t, g, r, c}) * k.at({b, s, g, c});
            const double p =
                std::exp(score / std::sqrt(static_cast<double>(width)) + added(b, g, r, t, s));
            total += p;
            for (int64_t c = 0; c < width; ++c) {
              y[row * static_cast<size_t>(width) + static_cast<size_t>(c)] +=
                  p * v.at({b, s, g, c});
            }
          }
          for (int64_t c = 0; c < width && total > 0; ++c) {
            y[row * static_cast<size_t>(width) + static_cast<size_t>(c)] /= total;
          }
        }
      }
    }
  }
  return y;
}

// More keys than one tile, a query that sees none, and a mask that hides whole tiles of a row.
TEST(Attention, HidesWhatABoolMaskDoes) {
  const Numbers q = waves({2, 3, 2, 2, 4}, 0.0);
  const Numbers k = waves({2, 300, 2, 4}, 1.0);
  const Numbers v = waves({2, 300, 2, 4}, 2.0);
  const auto hidden = [](int64_t b, int64_t, int64_t, int64_t t, int64_t s) {
    return (b == 1 && t == 2) || s < 270 * t || (s + t) % 3 == 0;
  };
  const Tensor mask = Tensor::zeros({2, 1, 1, 3, 300}, DType::kBool);
  for (int64_t i = 0; i < mask.numel(); ++i) {
    mask.data<bool>()[i] = !hidden(i / 900, 0, 0, i / 300 % 3, i % 300);
  }
  const std::vector<double> want = by_definition(q, k, v, hidden, [](auto...) { return 0.0; });
  const DTensor y =
      attention(tensor(q), tensor(k), tensor(v), {.causal = false, .mask = DTensor(mask)});
  EXPECT_THAT(y.local_tensor().to_vector<double>(), Pointwise(DoubleNear(1e-12), want));
}

TEST(Attention, AddsAMaskBesideCausal) {
  const Numbers q = waves({1, 4, 2, 3, 2}, 0.0);
  const Numbers k = waves({1, 6, 2, 2}, 1.0);
  const Numbers v = waves({1, 6, 2, 2}, 2.0);
  const Numbers bias = waves({2, 3, 1, 6}, 3.0);  // a bias for each head, the same for all queries
  const auto hidden = [](int64_t, int64_t, int64_t, int64_t t, int64_t s) { return s > t + 2; };
  const auto added = [&](int64_t, int64_t g, int64_t r, int64_t, int64_t s) {
    return bias.at({g, r, 0, s});
  };
  const std::vector<double> want = by_definition(q, k, v, hidden, added);
  const AttentionOptions options{.query_offset = 2, .mask = tensor(bias)};
  const DTensor y = attention(tensor(q), tensor(k), tensor(v), options);
  EXPECT_THAT(y.local_tensor().to_vector<double>(), Pointwise(DoubleNear(1e-12), want));
  // One query, whose heads read the keys together.
  const DTensor last = attention(narrow(tensor(q), 1, 3, 1), tensor(k), tensor(v),
                                 {.query_offset = 5, .mask = tensor(bias)});
  EXPECT_THAT(last.local_tensor().to_vector<double>(),
              Pointwise(DoubleNear(1e-12), std::vector<double>(want.end() - 12, want.end())));
}

TEST(Attention, OfCutHeadsAndBatchTakesAMaskThatIsWhole) {
  run_ranks(2, [](comm::Comm& comm) {
    const DeviceMesh mesh(comm, {{"tp", 2}});
    const Numbers q = waves({3, 2, 3, 1, 2}, 0.0);
    const Numbers k = waves({3, 4, 3, 2}, 1.0);
    const Numbers mask = waves({3, 1, 2, 4}, 3.0);  // [g,r,t,s]
    const DTensor whole_y =
        attention(tensor(q), tensor(k), tensor(k), {.causal = false, .mask = tensor(mask)});
    const DTensor on_mesh = replicate(tensor(mask), mesh);
    for (const auto& [of_q, of_k] : {std::pair(Shard(0), Shard(0)), std::pair(Shard(2), Shard(2)),
                                     std::pair(Shard(1), Replicate())}) {
      const DTensor keys = distribute(tensor(k).local_tensor(), mesh, {of_k});
      const DTensor y = attention(distribute(tensor(q).local_tensor(), mesh, {of_q}), keys, keys,
                                  {.causal = false, .mask = on_mesh});
      EXPECT_EQ(y.spec().placement(0), of_q);
      EXPECT_EQ(full(y).to_vector<double>(), whole_y.local_tensor().to_vector<double>());
    }
    const DTensor keys = replicate(tensor(k), mesh);
    EXPECT_THAT(placement_error([&] {
                  attention(replicate(tensor(q), mesh), keys, keys, {.mask = tensor(mask)});
                }),
                HasSubstr("use replicate(mask, mesh)"));
  });
}

TEST(Attention, OfF16IsThatOfF32RoundedOnce) {
  const auto half = [](const Numbers& n) { return tensor(n).local_tensor().to(DType::kFloat16); };
  const Tensor q = half(waves({2, 3, 2, 2, 4}, 0.0));
  const Tensor k = half(waves({2, 5, 2, 4}, 1.0));
  const Tensor mask = half(waves({3, 5}, 2.0));
  const auto run = [&](DType dtype) {
    const DTensor queries(q.to(dtype));
    const DTensor keys(k.to(dtype));
    const DTensor y = attention(queries, keys, keys, {.mask = DTensor(mask.to(dtype))});
    EXPECT_EQ(y.dtype(), dtype);
    return y.local_tensor().to(DType::kFloat16).to(DType::kFloat32).to_vector<float>();
  };
  EXPECT_EQ(run(DType::kFloat16), run(DType::kFloat32));
}

TEST(Attention, RefusesAMaskThatDoesNotBroadcast) {
  const DTensor q(Tensor::zeros({1, 2, 1, 1, 1}));
  const DTensor k(Tensor::zeros({1, 3, 1, 1}));
  EXPECT_THROW(attention(q, k, k, {.mask = DTensor(Tensor::zeros({3, 3}))}), ArgumentError);
  EXPECT_THROW(attention(q, k, k, {.mask = DTensor(Tensor::zeros({3}, DType::kInt64))}),
               ArgumentError);
  DTensor learned(Tensor::zeros({2, 3}));
  learned.set_requires_grad(true);
  EXPECT_THROW(attention(q, k, k, {.mask = learned}), ArgumentError);
}

}  // namespace
}  // namespace dtensor
