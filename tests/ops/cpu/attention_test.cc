#include "dtensor/ops/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sizes {
  int64_t b, t, g, r, d, s;
  Shape q() const { return {b, t, g, r, d}; }
  Shape k() const { return {b, s, g, d}; }
};

struct Reference {
  Values out, lse, dq, dk, dv;
};

// One query at a time, in double, with the whole row of scores.
Reference reference(const Sizes& n, const Values& q, const Values& k, const Values& v,
                    const Values& grad, const cpu::AttentionParams& params) {
  Reference ref{Values(q.size(), 0.0),
                {},
                Values(q.size(), 0.0),
                Values(k.size(), 0.0),
                Values(v.size(), 0.0)};
  const double scale = params.scale != 0 ? params.scale : 1 / std::sqrt(static_cast<double>(n.d));
  const auto key = [&](int64_t b, int64_t s, int64_t g) {
    return static_cast<size_t>(((b * n.s + s) * n.g + g) * n.d);
  };
  const auto d = static_cast<size_t>(n.d);
  size_t at = 0;  // of the query
  for (int64_t b = 0; b < n.b; ++b) {
    for (int64_t t = 0; t < n.t; ++t) {
      for (int64_t head = 0; head < n.g * n.r; ++head, at += d) {
        const int64_t g = head / n.r;
        Values score;
        for (int64_t s = 0; s < n.s; ++s) {
          if (params.causal && s > t + params.query_offset) break;
          double sum = 0;
          for (size_t c = 0; c < d; ++c) sum += q[at + c] * k[key(b, s, g) + c];
          score.push_back(sum * scale);
        }
        double most = -kInf;
        for (const double x : score) most = std::max(most, x);
        double total = 0;
        for (const double x : score) total += std::exp(x - most);
        ref.lse.push_back(score.empty() ? -kInf : most + std::log(total));
        double delta = 0;
        Values p(score.size());
        Values dp(score.size(), 0.0);
        for (size_t s = 0; s < score.size(); ++s) {
          p[s] = std::exp(score[s] - most) / total;
          const size_t ks = key(b, static_cast<int64_t>(s), g);
          for (size_t c = 0; c < d; ++c) {
            ref.out[at + c] += p[s] * v[ks + c];
            ref.dv[ks + c] += p[s] * grad[at + c];
            dp[s] += grad[at + c] * v[ks + c];
          }
          delta += p[s] * dp[s];
        }
        for (size_t s = 0; s < score.size(); ++s) {
          const size_t ks = key(b, static_cast<int64_t>(s), g);
          for (size_t c = 0; c < d; ++c) {
            ref.dq[at + c] += p[s] * (dp[s] - delta) * scale * k[ks + c];
            ref.dk[ks + c] += p[s] * (dp[s] - delta) * scale * q[at + c];
          }
        }
      }
    }
  }
  return ref;
}

class Attention : public ::testing::TestWithParam<DType> {
 protected:
  // Of values about 1; bf16 rounds every result once, and what it is computed from before.
  static double tolerance() {
    return GetParam() == DType::kFloat64 ? 1e-13 : GetParam() == DType::kFloat32 ? 5e-6 : 1.0 / 64;
  }
};
INSTANTIATE_TEST_SUITE_P(DTypes, Attention, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Attention, ForwardAndBackwardEqualOneQueryAtATime) {
  struct Case {
    Sizes n;
    cpu::AttentionParams params;
  };
  const std::vector<Case> cases = {
      {{2, 7, 2, 3, 12, 7}, {}},
      {{1, 70, 1, 2, 16, 70}, {}},                            // two tiles of queries
      {{1, 5, 2, 1, 10, 300}, {.query_offset = 295}},         // two tiles of keys
      {{1, 130, 1, 1, 8, 520}, {.query_offset = 200}},        // and both
      {{2, 6, 1, 2, 4, 9}, {.causal = false, .scale = 0.3}},  // every key
      {{1, 9, 1, 1, 6, 5}, {.query_offset = -3}},             // rows that see none
      {{2, 1, 3, 3, 20, 33}, {.query_offset = 32}},           // generation
      {{1, 1, 2, 1, 64, 600}, {.query_offset = 400}},         // with a longer cache
      {{1, 4, 2, 2, 5, 0}, {}},                               // no keys
      {{0, 4, 2, 2, 5, 4}, {}},
      {{2, 0, 2, 2, 5, 4}, {}},
      {{1, 3, 0, 2, 5, 4}, {}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << to_string(c.n.q()) << " keys " << c.n.s);
    const Tensor q = random(c.n.q(), GetParam(), 1, -2, 2);
    const Tensor k = random(c.n.k(), GetParam(), 2, -2, 2);
    const Tensor v = random(c.n.k(), GetParam(), 3);
    const Tensor grad = random(c.n.q(), GetParam(), 4);
    const Reference want = reference(c.n, values(q), values(k), values(v), values(grad), c.params);
    const auto check = [&](const Tensor& tq, const Tensor& tk, const Tensor& tv, const Tensor& tg) {
      const cpu::AttentionResult got = cpu::attention_forward(tq, tk, tv, c.params);
      expect_close(got.out, want.out, tolerance(), tolerance());
      expect_close(got.lse, want.lse, 2e-6, 2e-6);
      const cpu::AttentionGrads d = cpu::attention_backward(tg, tq, tk, tv, got, c.params);
      expect_close(d.dq, want.dq, tolerance(), tolerance());
      // A key's gradient adds those of all queries.
      const double queries = std::sqrt(static_cast<double>(c.n.t * c.n.r));
      expect_close(d.dk, want.dk, tolerance(), queries * tolerance());
      expect_close(d.dv, want.dv, tolerance(), queries * tolerance());
      EXPECT_EQ(d.dk.shape(), k.shape());
    };
    check(q, k, v, grad);
    check(strided(q), strided(k), strided(v), strided(grad));
    // A cache's view: keys with a pitch.
    const Tensor cache = Tensor::full({c.n.b, c.n.s + 5, c.n.g, c.n.d}, NAN, GetParam());
    kernels::copy(k, cache.narrow(1, 0, c.n.s));
    check(q, cache.narrow(1, 0, c.n.s), v, grad);
  }
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const Tensor q = Tensor::full({1, 2, 1, 1, 4}, 100, GetParam());
  const Tensor k = Tensor::full({1, 2, 1, 4}, 100, GetParam());
  const Tensor v = random({1, 2, 1, 4}, GetParam(), 5);
  const cpu::AttentionResult got = cpu::attention_forward(q, k, v, {.causal = false});
  for (int64_t c = 0; c < 4; ++c) {
    const auto i = static_cast<size_t>(c);
    EXPECT_NEAR(values(got.out)[i], (values(v)[i] + values(v)[i + 4]) / 2, tolerance());
  }
}

TEST_P(Attention, ThreadsDoNotChangeBits) {
  const Tensor q = random({2, 150, 2, 2, 16}, GetParam(), 6);
  const Tensor k = random({2, 150, 2, 16}, GetParam(), 7);
  const Tensor v = random({2, 150, 2, 16}, GetParam(), 8);
  const auto run = [&] {
    const cpu::AttentionResult f = cpu::attention_forward(q, k, v, {});
    const cpu::AttentionGrads d = cpu::attention_backward(q, q, k, v, f, {});
    return std::vector{bits(f.out), bits(f.lse), bits(d.dq), bits(d.dk), bits(d.dv)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

// pytorch#141429: a shard of the queries gives the rows of the whole, and the shards' gradients of
// the keys add up to the whole's.
TEST(AttentionShards, RowsOfQueriesAreThoseOfTheWhole) {
  const Tensor q = random({1, 11, 2, 2, 8}, DType::kFloat64, 9);
  const Tensor k = random({1, 11, 2, 8}, DType::kFloat64, 10);
  const Tensor v = random({1, 11, 2, 8}, DType::kFloat64, 11);
  const Tensor g = random({1, 11, 2, 2, 8}, DType::kFloat64, 12);
  const cpu::AttentionResult whole = cpu::attention_forward(q, k, v, {});
  const cpu::AttentionGrads grads = cpu::attention_backward(g, q, k, v, whole, {});
  Values dk(values(k).size(), 0.0);
  for (const auto& [begin, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 3}, {6, 0}, {6, 5}}) {
    const cpu::AttentionParams params{.query_offset = begin};
    const Tensor rows = q.narrow(1, begin, count);
    const cpu::AttentionResult part = cpu::attention_forward(rows, k, v, params);
    expect_close(part.out, values(whole.out.narrow(1, begin, count)), 1e-14, 1e-14);
    const cpu::AttentionGrads d =
        cpu::attention_backward(g.narrow(1, begin, count), rows, k, v, part, params);
    for (size_t i = 0; i < dk.size(); ++i) dk[i] += values(d.dk)[i];
  }
  expect_close(grads.dk, dk, 1e-12, 1e-13);
}

TEST(AttentionErrors, ShapesMustFit) {
  const Tensor q = Tensor::zeros({1, 2, 1, 1, 4});
  const Tensor k = Tensor::zeros({1, 2, 1, 4});
  EXPECT_THROW(cpu::attention_forward(q, k, Tensor::zeros({1, 3, 1, 4}), {}), ArgumentError);
  EXPECT_THROW(cpu::attention_forward(q, Tensor::zeros({1, 2, 2, 4}), k, {}), ArgumentError);
  EXPECT_THROW(cpu::attention_forward(k, k, k, {}), ArgumentError);
  EXPECT_THROW(cpu::attention_forward(q, k, k.to(DType::kFloat64), {}), ArgumentError);
  const cpu::AttentionResult f = cpu::attention_forward(q, k, k, {});
  EXPECT_THROW(cpu::attention_backward(k, q, k, k, f, {}), ArgumentError);
  EXPECT_THROW(cpu::attention_backward(q, q, k, k, {f.out, Tensor::zeros({2})}, {}), ArgumentError);
}

}  // namespace
}  // namespace dtensor
