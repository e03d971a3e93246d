#include "dtensor/ops/cpu/rope.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::bits;
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

// x [b,t,heads,d]: x cos + rotate_half(x) sin.
Values rotated(const Values& x, const Values& c, const Values& s, size_t b, size_t t, size_t heads,
               size_t d) {
  Values y(x.size());
  size_t at = 0;
  for (size_t i = 0; i < b; ++i) {
    for (size_t p = 0; p < t; ++p) {
      for (size_t head = 0; head < heads; ++head) {
        for (size_t k = 0; k < d; ++k) {
          const double other = k < d / 2 ? -x[at + k + d / 2] : x[at + k - d / 2];
          y[at + k] = x[at + k] * c[p * d + k] + other * s[p * d + k];
        }
        at += d;
      }
    }
  }
  return y;
}

class Rope : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Rope, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Rope, ForwardRotatesHalvesAndBackwardIsItsTranspose) {
  struct Case {
    Shape shape;
    size_t b, t, heads, d;
  };
  for (const Case& c : {Case{{2, 5, 3, 2, 12}, 2, 5, 6, 12}, Case{{1, 7, 64}, 1, 7, 1, 64},
                        Case{{3, 1, 4, 10}, 3, 1, 4, 10}}) {
    const Tensor x = random(c.shape, GetParam(), 1);
    const Tensor g = random(c.shape, GetParam(), 2);
    // The halves of the tables differ here, though Llama's are equal.
    const Shape table{static_cast<int64_t>(c.t), static_cast<int64_t>(c.d)};
    const Tensor cos = random(table, GetParam(), 3);
    const Tensor sin = random(table, GetParam(), 4);
    const auto forward = [&](const Values& v) {
      return rotated(v, values(cos), values(sin), c.b, c.t, c.heads, c.d);
    };
    const double tolerance = 2 * epsilon(GetParam());
    expect_close(cpu::rope(x, cos, sin), forward(values(x)), tolerance, tolerance);
    EXPECT_EQ(bits(cpu::rope(strided(x), strided(cos), strided(sin))),
              bits(cpu::rope(x, cos, sin)));
    // Column j of the linear map, dotted with g.
    Values want(values(x).size());
    for (size_t j = 0; j < want.size(); ++j) {
      Values unit(want.size(), 0.0);
      unit[j] = 1;
      const Values column = forward(unit);
      for (size_t i = 0; i < want.size(); ++i) want[j] += column[i] * values(g)[i];
      if (j == 40) {  // enough columns to see every part of a head
        want.resize(j + 1);
        break;
      }
    }
    Values got = values(cpu::rope_backward(strided(g), cos, sin));
    got.resize(want.size());
    for (size_t j = 0; j < want.size(); ++j) EXPECT_NEAR(got[j], want[j], 2 * tolerance) << j;
  }
}

TEST_P(Rope, ThreadsDoNotChangeBits) {
  const Tensor x = random({2, 300, 5, 32}, GetParam(), 5);
  const Tensor cos = random({300, 32}, GetParam(), 6);
  const Tensor sin = random({300, 32}, GetParam(), 7);
  const auto run = [&] {
    return std::vector{bits(cpu::rope(x, cos, sin)), bits(cpu::rope_backward(x, cos, sin))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(RopeErrors, TablesMustFit) {
  const Tensor x = Tensor::zeros({2, 3, 4});
  const Tensor t = Tensor::zeros({3, 4});
  EXPECT_THROW(cpu::rope(x, t, Tensor::zeros({2, 4})), ArgumentError);
  EXPECT_THROW(cpu::rope(Tensor::zeros({3, 4}), t, t), ArgumentError);
  EXPECT_THROW(cpu::rope(Tensor::zeros({2, 3, 5}), Tensor::zeros({3, 5}), Tensor::zeros({3, 5})),
               ArgumentError);
  EXPECT_EQ(cpu::rope(Tensor::zeros({0, 3, 4}), t, t).shape(), (Shape{0, 3, 4}));
  EXPECT_EQ(cpu::rope(Tensor::zeros({2, 0, 4}), t.narrow(0, 0, 0), t.narrow(0, 0, 0)).numel(), 0);
  EXPECT_EQ(cpu::rope(x.to(DType::kBFloat16), t, t).dtype(), DType::kBFloat16);
}

}  // namespace
}  // namespace dtensor
