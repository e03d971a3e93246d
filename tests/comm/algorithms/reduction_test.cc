#include "dtensor/comm/algorithms/reduction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace dtensor::comm {
namespace {

template <class T>
std::vector<T> reduce(const std::vector<std::vector<T>>& ranks, ReduceOp op) {
  std::vector<const void*> operands;
  for (const auto& r : ranks) operands.push_back(r.data());
  std::vector<T> out(ranks[0].size());
  reduce_into(out.data(), operands, static_cast<int64_t>(out.size()), kDTypeOf<T>, op);
  return out;
}

// Longer than the block in which it works, and no multiple of it.
TEST(Reduction, GoesFromLeftToRight) {
  std::vector<std::vector<float>> ranks(5, std::vector<float>(2500));
  std::vector<float> want(2500);
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      ranks[r][i] = std::ldexp(1.0F + static_cast<float>((i * 13 + r * 7) % 31) / 31,
                               static_cast<int>((i + r * 5) % 17));
      want[i] = r == 0 ? ranks[r][i] : want[i] + ranks[r][i];
    }
  }
  EXPECT_EQ(reduce(ranks, ReduceOp::kSum), want);
}

// pytorch#106395: 1, 256 and -256; in bf16 steps some orders lose the 1.
TEST(Reduction, SixteenBitSumsAreRoundedOnce) {
  using B = BFloat16;
  EXPECT_EQ(reduce<B>({{B(256)}, {B(1)}, {B(-256)}}, ReduceOp::kSum)[0], B(1));
  EXPECT_EQ(reduce<B>({{B(1)}, {B(256)}, {B(-256)}}, ReduceOp::kSum)[0], B(1));
  EXPECT_EQ(reduce<B>({{B(256)}, {B(1)}, {B(1)}}, ReduceOp::kSum)[0], B(258));
  EXPECT_EQ(reduce<B>({{B(256)}, {B(1)}, {B(1)}}, ReduceOp::kAvg)[0], B(86));
  using H = Float16;
  EXPECT_EQ(reduce<H>({{H(2048)}, {H(1)}, {H(1)}}, ReduceOp::kSum)[0], H(2050));
  // The sum leaves the range of f16, the average does not.
  EXPECT_EQ(reduce<H>({{H(60000)}, {H(60000)}}, ReduceOp::kAvg)[0], H(60000));
}

// numpy#21218
TEST(Reduction, DoesNotStartFromZero) {
  EXPECT_EQ(std::bit_cast<uint32_t>(reduce<float>({{-0.0F}, {-0.0F}}, ReduceOp::kSum)[0]),
            0x80000000U);
  EXPECT_EQ(std::bit_cast<uint32_t>(reduce<float>({{-0.0F}, {0.0F}}, ReduceOp::kSum)[0]), 0U);
  EXPECT_EQ(std::bit_cast<uint32_t>(reduce<float>({{-0.0F}}, ReduceOp::kSum)[0]), 0x80000000U);
  EXPECT_EQ(reduce<BFloat16>({{BFloat16(-0.0F)}, {BFloat16(-0.0F)}}, ReduceOp::kSum)[0].bits,
            0x8000);
}

TEST(Reduction, IntegersWrap) {
  EXPECT_EQ(reduce<int8_t>({{100}, {100}}, ReduceOp::kSum)[0], -56);
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reduce<int64_t>({{kMost}, {1}}, ReduceOp::kSum)[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reduce<int32_t>({{1 << 30}, {4}}, ReduceOp::kProd)[0], 0);
  EXPECT_EQ(reduce<uint8_t>({{3}, {250}}, ReduceOp::kMin)[0], 3);
  EXPECT_EQ(reduce<uint8_t>({{3}, {250}}, ReduceOp::kMax)[0], 250);
}

TEST(Reduction, MinAndMaxTakeNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_TRUE(std::isnan(reduce<float>({{nan}, {1}}, op)[0]));
    EXPECT_TRUE(std::isnan(reduce<float>({{1}, {nan}}, op)[0]));
  }
  EXPECT_EQ(reduce<double>({{-3}, {2}}, ReduceOp::kMax)[0], 2);
  EXPECT_EQ(reduce<double>({{-3}, {2}}, ReduceOp::kProd)[0], -6);
}

TEST(Reduction, WritesOverAnOperand) {
  std::vector<float> a(3000, 1);
  std::vector<float> b(3000, 2);
  const void* operands[] = {a.data(), b.data()};
  reduce_into(b.data(), operands, 3000, DType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(b, std::vector<float>(3000, 3));
}

}  // namespace
}  // namespace dtensor::comm
