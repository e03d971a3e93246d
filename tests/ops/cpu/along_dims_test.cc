#include "dtensor/ops/cpu/along_dims.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "dtensor/tests/ops/cpu/reference.h"

namespace dtensor {
namespace {

using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;

constexpr std::array<int, 2> kOuterAndInner = {0, 2};

class AlongDims : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, AlongDims, testing::floating_dtypes(), testing::dtype_test_name);

// Of a [3,5,7] tensor along dims 0 and 2, by plain loops.
TEST_P(AlongDims, PositionsAreThoseOfTheFirstExtreme) {
  Values v = values(random({3, 5, 7}, DType::kFloat64, 1, -4, 4));
  for (double& x : v) x = std::round(x);  // so that several are equal
  const Tensor x = Tensor::of(std::span<const double>(v), {3, 5, 7}).to(GetParam());
  std::vector<int64_t> most;
  std::vector<int64_t> least;
  for (size_t j = 0; j < 5; ++j) {
    int64_t high = 0;
    int64_t low = 0;
    const auto at = [&](int64_t p) {
      return v[(static_cast<size_t>(p) / 7 * 5 + j) * 7 + static_cast<size_t>(p) % 7];
    };
    for (int64_t p = 1; p < 21; ++p) {
      if (at(p) > at(high)) high = p;
      if (at(p) < at(low)) low = p;
    }
    most.push_back(high);
    least.push_back(low);
  }
  for (const Tensor& t : {x, strided(x)}) {
    EXPECT_EQ(cpu::argmax(t, kOuterAndInner).to_vector<int64_t>(), most);
    EXPECT_EQ(cpu::argmin(t, kOuterAndInner).to_vector<int64_t>(), least);
  }
}

TEST_P(AlongDims, ProductsOfOthersLeaveOneOut) {
  const Tensor x = random({2, 3, 4}, GetParam(), 2, 0.5, 1.5);
  const Values v = values(x);
  Values want(v.size(), 1.0);
  for (size_t i = 0; i < v.size(); ++i) {
    for (size_t k = 0; k < v.size(); ++k) {
      if (k != i && k / 4 % 3 == i / 4 % 3) want[i] *= v[k];
    }
  }
  expect_close(cpu::products_of_others(strided(x), kOuterAndInner), want, epsilon(GetParam()), 0);
}

TEST(AlongDims, OfNothing) {
  const std::array<int, 1> last = {1};
  EXPECT_THROW(cpu::argmax(Tensor::zeros({2, 0}), last), ArgumentError);
  EXPECT_EQ(cpu::argmax(Tensor::zeros({0, 2}), last).shape(), Shape{0});
  EXPECT_EQ(cpu::products_of_others(Tensor::zeros({2, 0}), last).shape(), (Shape{2, 0}));
  EXPECT_THROW(cpu::argmax(Tensor::zeros({2, 2}, DType::kBool), last), ArgumentError);
}

}  // namespace
}  // namespace dtensor
