#include "dtensor/ops/cpu/vector_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

class VectorNorm : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, VectorNorm, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(VectorNorm, SumsAndMaximumEqualPlainLoops) {
  for (const Shape& shape : {Shape{3, 5, 7}, Shape{9001}, Shape{}, Shape{0, 4}}) {
    const Tensor x = random(shape, GetParam(), 1);
    double squares = 0;
    double sum = 0;
    double most = 0;
    for (const double v : values(x)) {
      squares += v * v;
      sum += std::fabs(v);
      most = std::max(most, std::fabs(v));
    }
    for (const Tensor& t : {x, strided(x)}) {
      EXPECT_NEAR(cpu::sum_of_squares(t), squares, 1e-13 * squares);
      EXPECT_NEAR(cpu::sum_of_abs(t), sum, 1e-13 * sum);
      EXPECT_EQ(cpu::max_abs(t), most);
    }
  }
}

TEST_P(VectorNorm, ScalesInPlaceAlsoWhereStrided) {
  const Tensor x = random({6, 35}, GetParam(), 2);
  Values want = values(x);
  for (double& v : want) v *= 0.3;
  const Tensor gaps = strided(x);
  const uint64_t before = gaps.storage()->version();
  cpu::scale_in_place(gaps, 0.3);
  cpu::scale_in_place(x, 0.3);
  EXPECT_NE(gaps.storage()->version(), before);
  expect_close(x, want, 2 * epsilon(GetParam()), 0);
  EXPECT_EQ(bits(gaps.clone()), bits(x));
}

TEST_P(VectorNorm, ThreadsDoNotChangeBits) {
  const Tensor x = random({200'001}, GetParam(), 3);
  const auto run = [&] {
    return std::vector{cpu::sum_of_squares(x), cpu::sum_of_abs(x), cpu::max_abs(x)};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(VectorNormMore, NothingOverflowsAndNanIsSeen) {
  EXPECT_NEAR(cpu::sum_of_squares(Tensor::full({3}, 1e30)), 3e60, 1e54);
  const Tensor bad = Tensor::of<float>({1.0F, -2.0F, NAN, 4.0F}, {4});
  EXPECT_TRUE(std::isnan(cpu::sum_of_squares(bad)));
  EXPECT_TRUE(std::isnan(cpu::sum_of_abs(bad)));
  EXPECT_TRUE(std::isnan(cpu::max_abs(bad)));
  EXPECT_THROW(cpu::max_abs(Tensor::zeros({2}, DType::kInt64)), ArgumentError);
}

}  // namespace
}  // namespace dtensor
