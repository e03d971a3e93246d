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

TEST(RopeOfFloat16, IsComputedInFloat32AndRoundedOnce) {
  const DType f16 = DType::kFloat16;
  const Tensor x = random({2, 5, 3, 12}, f16, 8);
  const Tensor cos = random({5, 12}, f16, 9);
  const Tensor sin = random({5, 12}, f16, 10);
  // Halves of an ulp of values below 2, and what f32 loses before.
  const double absolute = 0x1p-11 + 1e-6;
  const Tensor y = cpu::rope(x, cos, sin);
  EXPECT_EQ(y.dtype(), f16);
  expect_close(y, rotated(values(x), values(cos), values(sin), 2, 5, 3, 12), 0, absolute);
  // Tables in f32 are used as they are.
  const Tensor fine_cos = random({5, 12}, DType::kFloat32, 9);
  const Tensor fine_sin = random({5, 12}, DType::kFloat32, 10);
  expect_close(cpu::rope(x, fine_cos, fine_sin),
               rotated(values(x), values(fine_cos), values(fine_sin), 2, 5, 3, 12), 0, absolute);
  EXPECT_EQ(bits(cpu::rope_backward(strided(x), cos, sin)),
            bits(cpu::rope_backward(x.to(DType::kFloat32), cos.to(DType::kFloat32),
                                    sin.to(DType::kFloat32))
                     .to(f16)));
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
  EXPECT_THROW(cpu::rope(x.to(DType::kFloat16), t, t.to(DType::kBFloat16)), ArgumentError);
}

}  // namespace
}  // namespace dtensor
