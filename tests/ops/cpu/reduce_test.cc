#include "dtensor/ops/cpu/reduce.h"

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
using testing::epsilon;
using testing::expect_close;
using testing::random;
using testing::strided;
using testing::Values;
using testing::values;
using testing::with_threads;

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Expected {
  Values sum, most, least, magnitude;
};

// By a loop over all elements of a tensor of 4 dims; `drop[d]` where dim d is reduced.
Expected reference(const Tensor& x, const std::vector<bool>& drop) {
  const Values v = values(x);
  int64_t count = 1;
  for (int d = 0; d < 4; ++d) count *= drop[static_cast<size_t>(d)] ? 1 : x.shape()[d];
  const auto n = static_cast<size_t>(count);
  Expected e{Values(n, 0.0), Values(n, -kInf), Values(n, kInf), Values(n, 0.0)};
  for (size_t flat = 0; flat < v.size(); ++flat) {
    auto rest = static_cast<int64_t>(flat);
    int64_t index[4];
    for (int d = 3; d >= 0; --d) {
      index[d] = rest % x.shape()[d];
      rest /= x.shape()[d];
    }
    size_t to = 0;
    for (int d = 0; d < 4; ++d) {
      if (drop[static_cast<size_t>(d)]) continue;
      to = to * static_cast<size_t>(x.shape()[d]) + static_cast<size_t>(index[d]);
    }
    e.sum[to] += v[flat];
    e.magnitude[to] += std::fabs(v[flat]);
    e.most[to] = std::max(e.most[to], v[flat]);
    e.least[to] = std::min(e.least[to], v[flat]);
  }
  return e;
}

class Reduce : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Reduce, testing::floating_dtypes(), testing::dtype_test_name);

TEST_P(Reduce, EverySetOfDimsEqualsAPlainLoop) {
  for (const Shape& shape : {Shape{3, 5, 7, 70}, Shape{2, 1, 130, 1}, Shape{1, 1, 1, 5000}}) {
    const Tensor x = random(shape, GetParam(), 1);
    const Tensor swapped = x.transpose(1, 3).clone().transpose(1, 3);
    for (int set = 1; set < 16; ++set) {
      std::vector<int> dims;
      std::vector<bool> drop(4);
      for (int d = 3; d >= 0; --d) {
        drop[static_cast<size_t>(d)] = ((set >> d) & 1) != 0;
        if (drop[static_cast<size_t>(d)]) dims.push_back(d % 2 == 0 ? d : d - 4);
      }
      const Expected e = reference(x, drop);
      SCOPED_TRACE(::testing::Message() << to_string(shape) << " set " << set);
      const double largest = *std::ranges::max_element(e.magnitude);
      const double rounded = GetParam() == DType::kBFloat16 ? epsilon(GetParam()) : 0;
      const double absolute =
          20 * epsilon(GetParam() == DType::kFloat64 ? GetParam() : DType::kFloat32) * largest;
      for (const Tensor& t : {x, strided(x), swapped}) {
        expect_close(cpu::sum(t, dims), e.sum, rounded, absolute);
        expect_close(cpu::amax(t, dims), e.most, 0, 0);
        expect_close(cpu::amin(t, dims), e.least, 0, 0);
      }
      Shape kept = shape;
      for (int d = 0; d < 4; ++d) {
        if (drop[static_cast<size_t>(d)]) kept[d] = 1;
      }
      EXPECT_EQ(cpu::sum(x, dims, cpu::KeepDims::kYes).shape(), kept);
      EXPECT_EQ(cpu::amax(x, dims).ndim(), 4 - static_cast<int>(dims.size()));
    }
  }
}

TEST_P(Reduce, OverNothingGivesTheIdentity) {
  const Tensor x = Tensor::zeros({2, 0, 3}, GetParam());
  const std::vector<int> middle = {1};
  EXPECT_EQ(values(cpu::sum(x, middle)), Values(6, 0.0));
  EXPECT_EQ(values(cpu::amax(x, middle)), Values(6, -kInf));
  EXPECT_EQ(values(cpu::amin(x, middle)), Values(6, kInf));
  EXPECT_EQ(values(cpu::sum(x)), Values{0});
  const std::vector<int> last = {2};
  EXPECT_EQ(cpu::sum(x, last).shape(), (Shape{2, 0}));
  EXPECT_EQ(values(cpu::sum(Tensor::full({}, 3, GetParam()))), Values{3});
}

TEST_P(Reduce, LongSumsDoNotDrift) {
  // 0.1 rounded to the dtype, a million times: a running f32 sum is off by about 1 in 100.
  const Tensor x = Tensor::full({1'000'000}, 0.1, GetParam());
  const double want = 1e6 * values(x.narrow(0, 0, 1))[0];
  // With the narrowest vectors 128 elements are added in f32, one after the other, then in double.
  const double tolerance = GetParam() == DType::kBFloat16 ? epsilon(GetParam()) : 128 * 0x1p-24;
  EXPECT_NEAR(values(cpu::sum(x))[0], want, tolerance * want);
  const std::vector<int> rows = {0};
  EXPECT_NEAR(values(cpu::sum(x.view({500'000, 2}), rows))[0], want / 2, tolerance * want);
}

TEST_P(Reduce, ThreadsDoNotChangeBits) {
  const Tensor x = random({300, 900}, GetParam(), 2);
  const std::vector<int> first = {0};
  const std::vector<int> second = {1};
  const auto run = [&] {
    return std::vector{bits(cpu::sum(x)), bits(cpu::sum(x, first)), bits(cpu::sum(x, second)),
                       bits(cpu::amax(x, first))};
  };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(ReduceMore, NanGoesThroughExtremes) {
  std::vector<float> v(100, 1.0F);
  v[57] = NAN;
  const Tensor x = Tensor::of(std::span<const float>(v), {10, 10});
  const std::vector<int> rows = {0};
  EXPECT_TRUE(std::isnan(values(cpu::amax(x))[0]));
  EXPECT_TRUE(std::isnan(values(cpu::amin(x, rows))[7]));
  EXPECT_EQ(values(cpu::amin(x, rows))[6], 1);
}

// pytorch#162692: extremes over shards that may be empty.
TEST(ReduceMore, IntegersHaveTheirOwnIdentity) {
  const Tensor x = Tensor::of<int32_t>({9, -5, 7}, {3});
  EXPECT_EQ(cpu::amin(x).to_vector<int32_t>(), std::vector<int32_t>{-5});
  EXPECT_EQ(cpu::amax(x).to_vector<int32_t>(), std::vector<int32_t>{9});
  EXPECT_EQ(cpu::sum(x).to_vector<int32_t>(), std::vector<int32_t>{11});
  const Tensor none = x.narrow(0, 0, 0);
  EXPECT_EQ(cpu::amin(none).to_vector<int32_t>()[0], std::numeric_limits<int32_t>::max());
  EXPECT_EQ(cpu::amax(none.to(DType::kInt64)).to_vector<int64_t>()[0],
            std::numeric_limits<int64_t>::lowest());
  const Tensor big = Tensor::of<int64_t>({1LL << 62, 1LL << 62, 5}, {3});
  EXPECT_EQ(cpu::sum(big).to_vector<int64_t>()[0], std::numeric_limits<int64_t>::lowest() + 5);
}

TEST(ReduceMore, WrongDimsAreErrors) {
  const Tensor x = Tensor::zeros({2, 3});
  const std::vector<int> twice = {1, -1};
  const std::vector<int> beyond = {2};
  EXPECT_THROW(cpu::sum(x, twice), ArgumentError);
  EXPECT_THROW(cpu::amax(x, beyond), ArgumentError);
  EXPECT_THROW(cpu::sum(Tensor::zeros({2}, DType::kBool)), ArgumentError);
}

TEST(Reduce, ProductsOfFloatsAndIntegers) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 0.5F, -1}, {2, 3});
  const std::vector<int> columns = {0};
  expect_close(cpu::prod(x), {-12}, 0, 0);
  expect_close(cpu::prod(strided(x), columns), {4, 1, -3}, 0, 0);
  expect_close(cpu::prod(x.to(DType::kFloat16), columns), {4, 1, -3}, 0, 0);
  expect_close(cpu::prod(x.to(DType::kInt64)), {0}, 0, 0);
  expect_close(cpu::prod(Tensor::zeros({0, 2}), columns), {1, 1}, 0, 0);
}

}  // namespace
}  // namespace dtensor
